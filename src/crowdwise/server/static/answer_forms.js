// The ways to answer, one for each answer type. A form has elements to show, keys (key -> function), and where the focus
// goes with a new question (nothing: the question).
import { element } from "/static/elements.js";

const MANY = 12; // classes that need a box to find one
const MOVING = /^(Arrow|Page|Home|End| )/; // keys of a slider

function keyed(key, text) {
  return [key ? element("kbd", { "aria-hidden": "true" }, key) : null, element("span", {}, text)];
}

function choice(key, text, choose, more = {}) {
  return element("button", { type: "button", class: "choice", "aria-keyshortcuts": key || null, onclick: choose, ...more }, ...keyed(key, text));
}

// A box that hides the choices whose names do not contain what is typed.
function finder(choices, names) {
  const box = element("input", { type: "search", id: "find", autocomplete: "off", placeholder: "part of a name" });
  const matching = () => choices.filter((_, i) => String(names[i]).toLowerCase().includes(box.value.trim().toLowerCase()));
  box.addEventListener("input", () => {
    const found = new Set(matching());
    for (const one of choices) one.hidden = !found.has(one);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const found = matching();
    if (found.length === 1) (found[0].querySelector("input") || found[0]).click();
  });
  return element("div", { class: "finder" }, element("label", { for: "find" }, "Find a class"), box);
}

function oneOf(names, answer, wanted, layout) {
  const keys = new Map();
  const choices = names.map((name, i) => {
    const key = i < 9 ? String(i + 1) : "";
    if (key) keys.set(key, () => answer(name));
    return choice(key, wanted ? wanted[i] : String(name), () => answer(name));
  });
  const shown = [element("div", { class: `choices ${layout}`, role: "group", "aria-label": "Your answer" }, ...choices)];
  if (names.length > MANY) shown.unshift(finder(choices, names));
  return { shown, keys };
}

function comparison({ ties }, question, answer) {
  const order = question.first === "right" ? ["right", "left"] : ["left", "right"];
  const names = ["The first", "The second", ...(ties ? ["They are equal"] : [])];
  const form = oneOf([...order, ...(ties ? ["tie"] : [])], answer, names, "row");
  form.keys.set("ArrowLeft", () => answer(order[0])).set("ArrowRight", () => answer(order[1]));
  return form;
}

// A slider has no value until it is touched, so that the middle is no suggestion.
function rating({ scale }, answer) {
  const { min, max, step } = { min: 0, max: 100, step: 1, ...scale };
  const limits = { min, max, step };
  const slider = element("input", { type: "range", id: "slider", class: "untouched", ...limits, "aria-describedby": "question" });
  slider.value = (min + max) / 2;
  const number = element("input", { type: "number", id: "number", inputmode: "decimal", ...limits });
  const done = element("button", { type: "submit", class: "primary", disabled: true }, "Answer");
  const take = (value) => {
    number.value = value;
    slider.value = value;
    slider.classList.remove("untouched");
    done.disabled = value === "" || !number.validity.valid;
  };
  for (const kind of ["input", "pointerup"]) slider.addEventListener(kind, () => take(slider.value));
  slider.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (!done.disabled) answer(Number(number.value));
  });
  slider.addEventListener("keyup", (event) => MOVING.test(event.key) && take(slider.value));
  number.addEventListener("input", () => {
    if (number.value !== "") slider.value = number.value;
    slider.classList.toggle("untouched", number.value === "");
    done.disabled = number.value === "" || !number.validity.valid;
  });
  const shown = element("div", { class: "rating" },
    element("label", { for: "slider" }, `Your rating, from ${min} to ${max}`),
    element("div", { class: "sliding" }, element("span", { "aria-hidden": "true" }, min), slider, element("span", { "aria-hidden": "true" }, max)),
    element("div", { class: "exact" }, element("label", { for: "number" }, "Exact value"), number, done),
  );
  return { shown: [shown], keys: new Map(), focus: slider, submit: () => done.disabled || answer(Number(number.value)) };
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
  const done = element("button", { type: "submit", class: "primary" });
  const count = () => {
    const n = boxes.filter((box) => box.checked).length;
    done.textContent = n ? `Answer with ${n} ${n === 1 ? "class" : "classes"}` : "Answer: none of them";
  };
  for (const box of boxes) box.addEventListener("change", count);
  count();
  const submit = () => answer(classes.filter((_, i) => boxes[i].checked));
  keys.set("Enter", submit);
  const group = element("fieldset", { class: "choices" }, element("legend", {}, "All that fit"), ...choices);
  return { shown: [...(classes.length > MANY ? [finder(choices, classes)] : []), group, done], keys, submit };
}

export function answerForm(kind, settings, question, answer) {
  if (kind === "comparisons") return comparison(settings, question, answer);
  if (kind === "ratings") return rating(settings, answer);
  if (kind === "label-sets") return labelSet(settings, answer);
  return oneOf(settings.classes, answer, null, kind === "ordinal" ? "grades" : "");
}
