// The ways to answer, one for each answer type. A form has elements to show, keys (key -> function), and where the focus
// goes with a new question (nothing: the question).
import { element } from "/static/elements.js";
import { count, t } from "/static/messages.js";
import { shown } from "/static/payloads.js";

const MANY = 12; // classes that need a box to find one

function keyed(key, text) {
  return [key ? element("kbd", { "aria-hidden": "true" }, key) : null, element("span", { dir: "auto" }, text)];
}

function choice(key, text, choose, more = {}) {
  return element("button", { type: "button", class: "choice", "aria-keyshortcuts": key || null, onclick: choose, ...more }, ...keyed(key, text));
}

// A box that hides the choices whose names do not contain what is typed.
function finder(choices, names) {
  const box = element("input", { type: "search", id: "find", autocomplete: "off", placeholder: t("part of a name") });
  const matching = () => choices.filter((_, i) => String(names[i]).toLowerCase().includes(box.value.trim().toLowerCase()));
  box.addEventListener("input", () => {
    const matches = new Set(matching());
    for (const one of choices) one.hidden = !matches.has(one);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const matches = matching();
    if (matches.length === 1) (matches[0].querySelector("input") || matches[0]).click();
  });
  return element("div", { class: "finder" }, element("label", { for: "find" }, t("Find a class")), box);
}

function oneOf(names, answer, wanted, layout) {
  const keys = new Map();
  const choices = names.map((name, i) => {
    const key = i < 9 ? String(i + 1) : "";
    if (key) keys.set(key, () => answer(name));
    return choice(key, wanted ? wanted[i] : String(name), () => answer(name));
  });
  const parts = [element("div", { class: `choices ${layout}`, role: "group", "aria-label": t("Your answer") }, ...choices)];
  if (names.length > MANY) parts.unshift(finder(choices, names));
  return { shown: parts, keys };
}

function comparison({ ties }, question, answer) {
  const order = question.first === "right" ? ["right", "left"] : ["left", "right"];
  const names = [t("The first"), t("The second"), ...(ties ? [t("They are equal")] : [])];
  const form = oneOf([...order, ...(ties ? ["tie"] : [])], answer, names, "row");
  form.keys.set("ArrowLeft", () => answer(order[0])).set("ArrowRight", () => answer(order[1]));
  return form;
}

const submitButton = (text, more = {}) => element("button", { type: "submit", class: "primary", ...more }, text);

// A slider has no value until it is touched, so that the middle is not a suggestion: the first arrow starts at an end.
// Digits type a number at once, wherever the focus is.
function rating({ scale }, answer) {
  const { min, max, step } = { min: 0, max: 100, step: 1, ...scale };
  const limits = { min, max, step };
  const slider = element("input", { type: "range", id: "slider", class: "untouched", ...limits, "aria-describedby": "question" });
  slider.value = min;
  const number = element("input", { type: "number", id: "number", inputmode: "decimal", ...limits });
  const shownValue = element("output", { for: "slider number", "aria-live": "polite" }, "–");
  const done = submitButton(t("Answer"), { disabled: true });
  let typed = "";
  const take = (value, typing = false) => {
    number.value = value;
    if (value !== "") slider.value = value;
    slider.classList.toggle("untouched", value === "");
    shownValue.textContent = value === "" ? "–" : value;
    done.disabled = value === "" || !number.validity.valid;
    if (!typing) typed = "";
  };
  const move = (steps) => {
    const now = number.value === "" ? (steps > 0 ? min - step : max + step) : Number(number.value);
    take(Number(Math.min(max, Math.max(min, now + steps * step)).toFixed(9)));
  };
  const type = (digit) => {
    const longer = typed + digit;
    typed = Number(longer) <= max ? longer : digit;
    take(Number(typed), true);
  };
  for (const kind of ["input", "pointerup"]) slider.addEventListener(kind, () => take(slider.value));
  number.addEventListener("input", () => take(number.value, true));
  const keys = new Map([["ArrowRight", () => move(1)], ["ArrowUp", () => move(1)], ["ArrowLeft", () => move(-1)], ["ArrowDown", () => move(-1)]]);
  for (let digit = 0; digit < 10; digit += 1) keys.set(String(digit), () => type(String(digit)));
  slider.addEventListener("keydown", (event) => {
    const run = keys.get(event.key) || (event.key === "Enter" ? () => done.click() : null);
    if (!run || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  });
  const submit = () => done.disabled || answer(Number(number.value));
  keys.set("Enter", submit);
  const box = element("div", { class: "rating" },
    element("label", { for: "slider" }, t("Your rating, from {min} to {max}", { min, max })),
    element("div", { class: "sliding" }, element("span", { "aria-hidden": "true" }, min), slider, element("span", { "aria-hidden": "true" }, max), shownValue),
    element("div", { class: "exact" }, element("label", { for: "number" }, t("Exact value")), number, done),
  );
  return { shown: [box], keys, focus: slider, submit, digits: true };
}

function labelSet({ classes }, answer) {
  const keys = new Map();
  const boxes = [];
  const choices = classes.map((name, i) => {
    const box = element("input", { type: "checkbox", value: i });
    const key = i < 9 ? String(i + 1) : "";
    if (key) keys.set(key, () => box.click());
    boxes.push(box);
    return element("label", { class: "choice box" }, box, ...keyed(key, String(name)));
  });
  const done = submitButton("");
  const tell = () => {
    const n = boxes.filter((box) => box.checked).length;
    done.textContent = n ? count(n, "Answer with {n} class", "Answer with {n} classes") : t("Answer: none of them");
  };
  for (const box of boxes) box.addEventListener("change", tell);
  tell();
  const submit = () => answer(classes.filter((_, i) => boxes[i].checked));
  keys.set("Enter", submit);
  const group = element("div", { class: "choices", role: "group", "aria-labelledby": "fit" }, ...choices);
  return { shown: [element("p", { id: "fit" }, t("All that fit")), ...(classes.length > MANY ? [finder(choices, classes)] : []), group, done], keys, submit };
}

// Options in random order; buttons move them, and dragging too. The answer is their places in the item.
function ranking(question, answer) {
  const options = question.payload.options || [];
  const order = options.map((_, i) => i).sort(() => Math.random() - 0.5);
  const list = element("ol", { class: "ranks", "aria-label": t("The best first") });
  const place = (i, by, focus) => {
    const to = i + by;
    if (to < 0 || to >= order.length) return;
    [order[i], order[to]] = [order[to], order[i]];
    draw();
    list.children[to].querySelector(`[data-by="${focus}"]`).focus();
  };
  let held = null;
  const draw = () => list.replaceChildren(...order.map((option, i) => {
    const button = (by, sign, text) => element("button", { type: "button", "data-by": by, "aria-disabled": i + by < 0 || i + by >= order.length ? "true" : null, "aria-label": text, onclick: () => place(i, by, by) }, sign);
    const row = element("li", { draggable: "true" }, element("div", {}, ...shown(options[option])), element("div", { class: "actions" }, button(-1, "↑", t("Up")), button(1, "↓", t("Down"))));
    row.addEventListener("dragstart", () => (held = i));
    row.addEventListener("dragover", (event) => event.preventDefault());
    row.addEventListener("drop", (event) => {
      event.preventDefault();
      order.splice(i, 0, ...order.splice(held, 1));
      draw();
    });
    return row;
  }));
  draw();
  const submit = () => answer([...order]);
  return { shown: [element("p", { class: "hint" }, t("Put them in order, the best first.")), list, submitButton(t("Answer"))], keys: new Map([["Enter", submit]]), submit, focus: list.querySelector("button") };
}

function freeText(answer) {
  const box = element("textarea", { id: "written", rows: 3, maxlength: 20000, dir: "auto" });
  const done = submitButton(t("Answer"), { disabled: true });
  box.addEventListener("input", () => (done.disabled = !box.value.trim()));
  box.addEventListener("keydown", (event) => event.key === "Enter" && !event.shiftKey && (event.preventDefault(), done.click()));
  const submit = () => done.disabled || answer(box.value.trim());
  return { shown: [element("label", { for: "written" }, t("Your text (Enter answers, Shift and Enter begin a line)")), box, done], keys: new Map(), focus: box, submit };
}

// A tag for every token: choose tokens (Shift or dragging takes several), then their tag.
function tagging({ classes }, question, answer) {
  const none = classes.includes("O") ? "O" : classes[0];
  const tokens = question.payload.tokens || String(question.payload.text || "").split(/\s+/).filter(Boolean);
  const tags = tokens.map(() => none);
  const chosen = new Set();
  let last = 0;
  let dragging = false;
  const buttons = tokens.map((token, i) => element("button", { type: "button", class: "token", "aria-pressed": "false" }, element("span", { dir: "auto" }, token), element("small", {})));
  const draw = () => buttons.forEach((button, i) => {
    button.setAttribute("aria-pressed", chosen.has(i));
    button.classList.toggle("tagged", tags[i] !== none);
    button.lastChild.textContent = tags[i] === none ? "\u00a0" : tags[i];
  });
  const range = (to) => {
    for (let i = Math.min(last, to); i <= Math.max(last, to); i += 1) chosen.add(i);
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", (event) => {
      if (event.shiftKey) range(i);
      else if (chosen.has(i) && event.detail === 0) chosen.delete(i);
      else if (event.detail === 0) chosen.add(i);
      last = i;
      draw();
    });
    button.addEventListener("pointerdown", (event) => {
      if (event.shiftKey) return;
      dragging = true;
      if (!event.ctrlKey && !event.metaKey) chosen.clear();
      chosen.add(i);
      last = i;
      draw();
    });
    button.addEventListener("pointerenter", () => {
      if (!dragging) return;
      range(i);
      draw();
    });
  });
  addEventListener("pointerup", () => (dragging = false));
  const begins = (tag, i) => (typeof tag === "string" && tag.startsWith("B-") && chosen.has(i - 1) && classes.includes(`I-${tag.slice(2)}`) ? `I-${tag.slice(2)}` : tag);
  const give = (tag) => {
    for (const i of chosen) tags[i] = begins(tag, i);
    chosen.clear();
    draw();
  };
  const offered = classes.filter((name) => !(typeof name === "string" && name.startsWith("I-") && classes.includes(`B-${name.slice(2)}`)));
  const form = oneOf(offered, give, offered.map((name) => (name === none ? t("{name} (none)", { name }) : String(name).replace(/^B-/, ""))), "row");
  const submit = () => answer([...tags]);
  draw();
  const instead = element("div", { class: "tokens", role: "group", "aria-label": t("Tokens: choose some, then their tag") }, ...buttons);
  form.keys.set("Enter", submit);
  return { shown: [element("p", { class: "hint" }, t("Choose tokens, then their tag.")), ...form.shown, submitButton(t("Answer"))], keys: form.keys, submit, instead };
}

// Stretches of the text: select some of it, then a class. Letters are counted as Python counts them.
function marking({ classes }, question, answer) {
  const text = String(question.payload.text || "");
  const marks = [];
  const place = element("p", { class: "text", id: "marked", dir: "auto", tabindex: 0 });
  const points = (upto) => [...text.slice(0, upto)].length;
  const draw = () => {
    const parts = [];
    let at = 0;
    for (const one of marks.sort((a, b) => a.from - b.from)) {
      parts.push(text.slice(at, one.from), element("mark", {}, text.slice(one.from, one.to), element("small", { "data-skip": "yes" }, one.label)));
      at = one.to;
    }
    place.replaceChildren(...parts, text.slice(at));
    list.replaceChildren(...marks.map((one) => element("button", { type: "button", class: "small", onclick: () => (marks.splice(marks.indexOf(one), 1), draw()) }, `${text.slice(one.from, one.to).slice(0, 30)} · ${one.label} ✕`, element("span", { class: "hidden" }, t(" remove")))));
    done.textContent = marks.length ? count(marks.length, "Answer with {n} stretch", "Answer with {n} stretches") : t("Answer: nothing to mark");
  };
  const offset = (node, within) => {
    const walk = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    let sum = 0;
    for (let one; (one = walk.nextNode()); ) {
      const counted = !one.parentElement.closest("[data-skip]");
      if (one === node) return sum + (counted ? within : 0);
      if (counted) sum += one.length;
    }
    return node === place ? [...place.childNodes].slice(0, within).reduce((n, child) => n + (child.firstChild ? child.firstChild.length : child.length || 0), 0) : sum;
  };
  const give = (label) => {
    const selected = getSelection();
    if (!selected.rangeCount || selected.isCollapsed || !place.contains(selected.anchorNode) || !place.contains(selected.focusNode)) return;
    const [from, to] = [offset(selected.anchorNode, selected.anchorOffset), offset(selected.focusNode, selected.focusOffset)].sort((a, b) => a - b);
    if (from < to && !marks.some((one) => from < one.to && one.from < to)) marks.push({ from, to, label });
    selected.removeAllRanges();
    draw();
  };
  const list = element("div", { class: "actions" });
  const done = submitButton("");
  const form = oneOf(classes, give, null, "row");
  const submit = () => answer(marks.map((one) => ({ start: points(one.from), end: points(one.to), label: one.label })));
  form.keys.set("Enter", submit);
  for (const one of form.shown[0].querySelectorAll("button")) one.addEventListener("pointerdown", (event) => event.preventDefault()); // the selection stays
  draw();
  return { shown: [element("p", { class: "hint" }, t("Select a part of the text, then its class.")), ...form.shown, list, done], keys: form.keys, submit, instead: place };
}

function formOf(kind, settings, question, answer) {
  if (kind === "comparisons") return comparison(settings, question, answer);
  if (kind === "ratings") return rating(settings, answer);
  if (kind === "label-sets") return labelSet(settings, answer);
  if (kind === "rankings") return ranking(question, answer);
  if (kind === "texts") return freeText(answer);
  if (kind === "tags") return tagging(settings, question, answer);
  if (kind === "spans") return marking(settings, question, answer);
  return oneOf(settings.classes, answer, null, kind === "ordinal" ? "grades" : "");
}

// unsure(): "I don't know", where the campaign takes it.
export function answerForm(kind, settings, question, answer, unsure) {
  const form = formOf(kind, settings, question, answer);
  if (unsure) {
    const key = form.digits ? "" : "0";
    if (key) form.keys.set(key, unsure);
    form.shown.push(choice(key, t("I don't know"), unsure, { class: "choice unsure" }));
  }
  return form;
}
