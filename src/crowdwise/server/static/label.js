// The labelling page: a question, an answer, the next question. Answers go through the outbox, so that a lost connection
// loses none; a few questions are fetched ahead, so that it does not stop the work at once.
import { answerForm } from "/static/answer_forms.js";
import { call } from "/static/calls.js";
import { element, find, words } from "/static/elements.js";
import { markdown } from "/static/markdown.js";
import { count, t } from "/static/messages.js";
import { newId, Outbox } from "/static/outbox.js";
import { excerpt, shown } from "/static/payloads.js";

const AHEAD = 3; // questions that the browser has
const AGAIN = 20000; // milliseconds until it asks again where there was none
const REMEMBERED = 50; // actions that can be undone

const page = find("#label");
const { campaign, type: kind, annotator } = page.dataset;
const api = `/api/v1/campaigns/${campaign}`;
const asked = JSON.parse(page.dataset.questions); // what is asked of each item: most campaigns have one question
const canBeUnsure = JSON.parse(page.dataset.unsure);
const as = page.dataset.as ? { annotator: page.dataset.as } : {}; // a lead labels under a name
const heading = find("#heading");
const outbox = new Outbox(`crowdwise:${campaign}:${annotator}`, send, happened);
let queue = []; // questions, the first is shown
const old = new Set(outbox.entries.map((entry) => entry.id)); // of an earlier visit: the server may have counted them
let done = Number(page.dataset.done) + outbox.entries.filter((entry) => entry.path === "votes").length;
let behind = false; // another tab may have done more than this one knows
let past = []; // what was done here, the last action last
const over = new Set(); // items that were answered or skipped here: an answer of "next" may be older than that
let form = null; // the way to answer that is shown
let answered = []; // answers to the first of several questions of the item that is shown
let since = 0;
let again = 0;
let filling = null;
let acted = false; // the focus moves after an action, not when the page opens

function say(text) {
  find("#said").textContent = text;
}

function send(entry) {
  return call(`${api}/${entry.path}`, { ...entry.body, ...as });
}

function happened(what, entry, result) {
  if (what === "sent" && result.feedback && result.feedback.length) tellFeedback(result.feedback[0], entry);
  if (what === "sent" && result.repeated && old.has(entry.id)) done -= 1;
  if (what === "refused") {
    if (entry.path === "votes") {
      done -= 1;
      behind = true;
    }
    past = past.filter((action) => action.id !== entry.id);
    over.delete(String(entry.body.item));
    say(t("An answer was not taken: {why}", { why: result.message }));
  }
  if (what === "signed-out") endSession();
  drawLine();
  if (behind && !outbox.length) recount();
}

// How much is done, by the server: after an answer that was not taken, since another tab may have given it, and more.
async function recount() {
  behind = false;
  const before = done;
  try {
    const progress = await call(`${api}/progress?${new URLSearchParams(as)}`);
    if (done !== before || outbox.length) behind = true; // answered meanwhile: count again after that
    else done = progress.done;
  } catch {
    behind = true;
  }
  if (queue.length && form) heading.textContent = t("Question {n}", { n: done + 1 });
  drawLine();
}

// Whether the answer to a question with a known answer was right.
function tellFeedback(feedback, entry) {
  const of = entry.about ? `“${entry.about}”` : String(feedback.item);
  const facts = { of, said: inWords(entry.body.label), known: inWords(feedback.expected) };
  const text = feedback.correct ? t("Correct: {of} is {known}.", facts) : t("You chose {said} for {of}. The known answer is {known}.", facts);
  find("#feedback").replaceChildren(element("p", { class: feedback.correct ? "notice good" : "notice bad" }, text));
}

function drawLine() {
  const waiting = outbox.length;
  const line = find("#line");
  line.textContent = waiting ? count(waiting, "{n} answer waits in this browser", "{n} answers wait in this browser") : t("All answers are saved");
  line.classList.toggle("waits", waiting > 0);
  find("#done").textContent = done;
  const bar = find("#bar");
  bar.value = Math.min(done, bar.max);
  find("#undo").disabled = done < 1 && !past.length && !answered.length;
}

// ---------------------------------------------------------------- what is shown

function state(title, text, ...buttons) {
  heading.textContent = title;
  find("#question").replaceChildren(element("p", {}, text), ...(buttons.length ? [element("p", { class: "actions" }, ...buttons)] : []));
  find("#answers").replaceChildren();
  find("#skip").hidden = true;
  form = null;
  answered = [];
  page.dataset.state = "none";
  if (acted) heading.focus();
}

function draw() {
  const now = queue[0];
  heading.textContent = t("Question {n}", { n: done + 1 });
  page.dataset.state = "question";
  if (kind === "comparisons") {
    const order = now.first === "right" ? ["right", "left"] : ["left", "right"];
    const sides = order.map((side, i) => element("section", { class: "side", "aria-labelledby": `side${i}` }, element("h3", { id: `side${i}` }, t(i ? "The second" : "The first")), ...shown(now.payload[side])));
    const rest = Object.fromEntries(Object.entries(now.payload).filter(([name]) => name !== "left" && name !== "right"));
    find("#question").replaceChildren(...(Object.keys(rest).length ? shown(rest) : []), element("div", { class: "sides" }, ...sides));
  } else {
    const rest = kind === "spans" || kind === "tags" ? { ...now.payload, text: null, tokens: [] } : now.payload;
    find("#question").replaceChildren(...shown(rest, now.item));
  }
  if (now.before !== undefined) find("#question").append(element("p", { class: "hint" }, t("Your answer was: {said}", { said: inWords(now.before) })));
  answered = [];
  drawForm();
  find("#skip").hidden = false;
  since = performance.now();
  if (acted) (form.focus || heading).focus();
}

// The way to answer; of several questions the one whose turn it is, below those that are answered.
function drawForm() {
  const now = answered.length;
  form = answerForm(asked[now].type, asked[now], queue[0], answer, canBeUnsure && !now ? unsure : null);
  if (form.instead) find("#question").append(form.instead);
  find("#answers").replaceChildren(...(asked.length > 1 ? asked.map((one, i) => part(one, i, now)) : form.shown));
  drawLine();
}

function part({ question, about }, i, now) {
  const change = i < now ? [element("p", {}, element("strong", { dir: "auto" }, words(answered[i])), " ", element("button", { type: "button", class: "quiet small", onclick: () => back(i) }, t("Change")))] : [];
  const head = element("h3", { id: `part${i}`, tabindex: -1 }, t("{i} of {n}: {question}", { i: i + 1, n: asked.length, question: question.replaceAll("_", " ") }));
  const hint = about && i === now ? [element("p", { class: "hint", dir: "auto" }, about)] : [];
  return element("section", { class: "part", "aria-labelledby": `part${i}` }, head, ...hint, ...change, ...(i === now ? form.shown : []));
}

function focusForm() {
  (form.focus || find(`#part${answered.length}`)).focus();
}

function back(to) {
  answered = answered.slice(0, to);
  drawForm();
  focusForm();
}

function endSession() {
  queue = [];
  clearTimeout(again);
  const waiting = outbox.length;
  const kept = waiting ? ` ${count(waiting, "One answer is kept in this browser and sent when you are back.", "{n} answers are kept in this browser and sent when you are back.")}` : "";
  state(t("Your session has ended"), `${t("Open your invitation link again to go on.")}${kept}`, element("a", { class: "button", href: location.href }, t("Load the page again")));
}

// ---------------------------------------------------------------- what is asked

async function ask() {
  const waiting = new Set(outbox.entries.map((entry) => String(entry.body.item)));
  const query = new URLSearchParams({ n: Math.min(50, AHEAD + waiting.size), ...as });
  const reply = await call(`${api}/next?${query}`);
  const there = new Set([...waiting, ...over, ...queue.map((question) => String(question.item))]);
  const empty = !queue.length;
  queue.push(...reply.questions.filter((question) => !there.has(String(question.item))));
  if (!empty) return;
  if (queue.length) return draw();
  const why = t(reply.why_none || reply.state);
  const thanks = `${why.charAt(0).toUpperCase()}${why.slice(1)}. ${t("You have answered {n}. Thank you.", { n: done })}`;
  if (reply.code) {
    const code = element("input", { id: "code", readonly: true, value: reply.code, onfocus: () => code.select() });
    const back = /^https:/.test(reply.code) ? [element("a", { class: "button primary", href: reply.code }, t("Finish"))] : [];
    state(t("Done"), thanks, ...back);
    find("#question").append(element("label", { for: "code" }, t("Your completion code")), code);
    return undefined;
  }
  state(t("Nothing left for you now"), thanks, element("button", { type: "button", onclick: () => fill() }, t("Look again")));
  again = setTimeout(fill, AGAIN);
}

// Have questions ahead; show the first where none was shown.
function fill() {
  clearTimeout(again);
  filling ??= ask()
    .catch((error) => {
      if (error.signedOut) return endSession();
      if (queue.length) return undefined; // there is something to do meanwhile
      const waiting = outbox.length;
      const kept = waiting ? ` ${count(waiting, "One answer is kept in this browser until then.", "{n} answers are kept in this browser until then.")}` : "";
      if (error.passing) state(t("No connection"), `${t("The next question comes when the server can be reached.")}${kept}`, element("button", { type: "button", onclick: resume }, t("Try again")));
      else state(t("This did not work"), error.message, element("button", { type: "button", onclick: () => fill() }, t("Try again")));
      again = setTimeout(resume, error.passing ? 3000 : AGAIN);
      return undefined;
    })
    .finally(() => {
      filling = null;
    });
  return filling;
}

async function resume() {
  await outbox.flush();
  if (page.dataset.state !== "question" || queue.length < AHEAD) await fill();
}

// ---------------------------------------------------------------- what an annotator does

function next(path, body, text) {
  const question = queue.shift();
  const entry = { id: newId(), path, body: { item: question.item, ...body }, about: excerpt(question.payload, question.item) };
  if (path === "votes") Object.assign(entry.body, { id: entry.id, ticket: question.ticket, seconds: (performance.now() - since) / 1000 });
  acted = true;
  over.add(String(question.item));
  past = [...past, { id: entry.id, path, question, label: body.label, others: body.others }].slice(-REMEMBERED);
  if (path === "votes") done += 1;
  find("#feedback").replaceChildren();
  if (find("#guide") && done === 1) find("#guide").open = false;
  outbox.add(entry);
  say(text);
  if (queue.length) draw();
  else {
    form = null;
    answered = [];
    find("#answers").replaceChildren();
    find("#skip").hidden = true;
    page.dataset.state = "none";
  }
  drawLine();
  resume();
}

function answer(label) {
  if (!form) return;
  answered = [...answered, label];
  if (answered.length < asked.length) {
    drawForm();
    focusForm();
    say(t("Answered: {said}.", { said: words(label) }));
    return;
  }
  const others = asked.length > 1 ? { others: Object.fromEntries(asked.slice(1).map((one, i) => [one.question, answered[i + 1]])) } : {};
  next("votes", { label: answered[0], ...others }, t("Answered: {said}.", { said: answered.map(chosenWords).join(" · ") }));
}

// An answer with a meaning: the item is not asked of this annotator again, and the lead sees who did not know.
function unsure() {
  if (form) next("skip", { reason: "I don't know" }, t("Answered: {said}.", { said: t("I don't know") }));
}

// An answer in words; of an order or stretches, what is shown of them.
function inWords(label) {
  if (kind === "spans" && Array.isArray(label)) return label.length ? label.map((one) => one.label).join(", ") : t("nothing");
  if (kind === "rankings" && Array.isArray(label)) return label.map((one) => (typeof one === "number" ? one + 1 : one)).join(" > ");
  return words(label);
}

function chosenWords(label) {
  if (kind !== "comparisons") return inWords(label);
  return t(label === "tie" ? "equal" : label === (queue[0].first || "left") ? "the first" : "the second");
}

function showAgain(question, before) {
  over.delete(String(question.item));
  queue = [{ ...question, before }, ...queue.filter((other) => String(other.item) !== String(question.item))];
  acted = true;
  draw();
}

async function undo() {
  if (answered.length) return back(answered.length - 1);
  const last = past.at(-1);
  const kept = last && outbox.sending !== last.id && outbox.entries.some((entry) => entry.id === last.id);
  try {
    if (kept) outbox.remove(last.id);
    else if (!last || last.path === "votes") {
      await outbox.flush();
      const taken = await call(`${api}/undo`, { ...(last ? { item: last.question.item } : {}), ...as });
      if (!last) {
        done -= 1;
        over.delete(String(taken.item));
        say(t("Your answer was taken back: {said}.", { said: inWords(taken.label) }));
        drawLine();
        return fill();
      }
    }
  } catch (error) {
    return error.signedOut ? endSession() : say(t("The answer was not taken back. {why}", { why: error.message }));
  }
  past = past.slice(0, -1);
  if (last.path === "votes") done -= 1;
  find("#feedback").replaceChildren();
  showAgain(last.question, last.path !== "votes" ? t("skipped") : last.others ? [last.label, ...Object.values(last.others)].map(words).join(" · ") : chosenIn(last));
  say(t("Your last answer was taken back."));
  return drawLine();
}

function chosenIn({ question, label }) {
  if (kind !== "comparisons") return label;
  return t(label === "tie" ? "equal" : label === (question.first || "left") ? "the first" : "the second");
}

const dialog = find("#skipping");
find("#skip").addEventListener("click", () => {
  dialog.querySelector("form").reset();
  dialog.showModal();
});
dialog.querySelector("form").addEventListener("submit", (event) => {
  if (event.submitter.value !== "skip" || !form) return;
  const { reason, more } = event.target.elements;
  const text = more.value.trim();
  next("skip", { reason: reason.value === "other" ? text : text ? `${reason.value}: ${text}` : reason.value }, t("Skipped."));
});
dialog.addEventListener("close", () => acted && (form && form.focus ? form.focus : heading).focus());
find("#undo").addEventListener("click", undo);
find("#answers").addEventListener("submit", (event) => {
  event.preventDefault();
  if (form && form.submit) form.submit();
});

// Keys of one letter can be switched off: some people speak to their browser.
const keys = find("#keys");
try {
  keys.checked = localStorage.getItem("crowdwise:keys") !== "off";
} catch {
  keys.checked = true;
}
keys.addEventListener("change", () => {
  try {
    localStorage.setItem("crowdwise:keys", keys.checked ? "on" : "off");
  } catch {
    // kept for this page only
  }
});
// Keys of recordings and images.
function mediaKey(key) {
  const player = find("#question audio");
  const zoom = find(`#question [data-zoom="${key === "+" ? "in" : "out"}"]`);
  if (zoom && (key === "+" || key === "-")) return () => zoom.click();
  if (!player) return null;
  if (key === "p") return () => (player.paused ? player.play().catch(() => {}) : player.pause());
  return key === "b" ? () => (player.currentTime = Math.max(0, player.currentTime - 3)) : null;
}

document.addEventListener("keydown", (event) => {
  const gone = dialog.contains(event.target) && !dialog.open; // a browser takes the focus away a moment after it closed
  const typing = !gone && event.target.matches("input:not([type=checkbox]):not([type=range]), textarea, select");
  const own = event.key === "Enter" && event.target.matches("button, a, summary, input");
  if (!keys.checked || typing || own || dialog.open || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const run = event.key === "u" ? undo : event.key === "s" && form ? () => find("#skip").click() : (form && form.keys.get(event.key)) || mediaKey(event.key);
  if (!run) return;
  event.preventDefault();
  run();
});

addEventListener("online", resume);
addEventListener("beforeunload", (event) => {
  if (outbox.memory.length) event.preventDefault(); // answers that only this page has
});
const instructions = find("#instructions");
if (instructions) {
  instructions.replaceChildren(...markdown(instructions.textContent));
  find("#guide").open = done === 0; // read once; after that they are a click away
}
drawLine();
resume();
