// The watching page: the status of a campaign, drawn again when the server says that something happened.
import { call } from "/static/calls.js";
import { accuracyChart, paceChart } from "/static/charts.js";
import { amount, element, find, percent, words } from "/static/elements.js";
import { count, t, sentence } from "/static/messages.js";
import { peopleList, reviewList } from "/static/watch_lists.js";

const SOON = 700; // milliseconds from an event to what is quick to read
const LATER = 4000; // and the fewest between readings of what takes longer
const POLL = 5000; // where there is no event stream

const page = find("#watch");
const { campaign, type } = page.dataset;
const lead = page.dataset.lead === "true";
const classes = JSON.parse(page.dataset.classes);
const settings = JSON.parse(page.dataset.settings);
const api = `/api/v1/campaigns/${campaign}`;
const whole = api.split(".")[0]; // of several questions: their campaign, which has the people and the state
const seen = {}; // what was read last, by its name
let axis = "spent";
let showAll = false;
let over = false;

function say(text) {
  find("#said").textContent = text;
}

// What a part answers; before the first vote and for other answer types some parts have nothing.
async function read(name, query = "") {
  try {
    seen[name] = await call(`${api}/${name}${query}`);
  } catch (error) {
    if (error.signedOut) signedOut();
    else if (error.status === 409 || error.status === 422) seen[name] = null;
    else if (!error.passing) say(error.message);
    else connection(t("The server cannot be reached; trying again."));
  }
  return seen[name];
}

function signedOut() {
  over = true;
  find("#stop").replaceChildren(element("p", { class: "notice bad" }, `${t("Your session has ended")}. `, element("a", { href: `/login?next=${encodeURIComponent(location.pathname)}` }, t("Sign in again"))));
}

function connection(text) {
  find("#live").textContent = text;
}

// Put elements into a place. Who uses a control there keeps the focus, what was chosen and a button that is held down.
let held = null;
function put(place, make, key) {
  if (place.dataset.key === key || (held && place.contains(held))) return;
  const inside = place.contains(document.activeElement) ? document.activeElement : null;
  const chosen = [...place.querySelectorAll("[data-touched]")];
  if (inside && chosen.includes(inside)) return;
  place.replaceChildren(...make());
  place.dataset.key = key;
  const same = (control) => [...place.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === control.dataset.focus);
  for (const control of chosen) {
    const now = same(control);
    if (!now) continue;
    now.value = control.value;
    now.dataset.touched = "yes";
  }
  if (inside && inside.dataset.focus) same(inside)?.focus();
}
document.addEventListener("change", (event) => {
  if (event.target.dataset.focus) event.target.dataset.touched = "yes";
});
document.addEventListener("pointerdown", (event) => (held = event.target));
for (const kind of ["pointerup", "pointercancel"]) {
  document.addEventListener(kind, () => {
    held = null;
    setTimeout(drawLists); // after the click
  });
}

// ---------------------------------------------------------------- status

function tile(name, value, more, share) {
  const bar = share === undefined ? null : element("progress", { max: 1, value: Math.min(1, share), "aria-label": t("{name}: share", { name }) });
  return element("div", { class: "tile" }, element("dt", {}, name), element("dd", {}, element("strong", {}, value), more ? element("span", { class: "hint" }, more) : null, bar));
}

// How much annotators agree, by the coefficient that is usual for the answers.
function agreementTile() {
  const known = (seen.agreement || []).filter((row) => typeof row.value === "number");
  const best = known.find((row) => ["krippendorff alpha", "kendall tau"].includes(row.coefficient)) || known[0];
  if (!best) return tile(t("Agreement"), t("not known"), (seen.agreement || []).length ? t("the answers are too few, or all alike") : t("no item has two answers yet"));
  const write = (x) => (best.coefficient === "percent" ? percent(x) : x.toFixed(2));
  const interval = typeof best.low === "number" ? `, 95% CI ${write(best.low)}-${write(best.high)}` : "";
  return tile(t("Agreement"), write(best.value), `${t(best.title)}${interval}`);
}

const NUMBERS = { probability: "Probability", interval: "95% CI", rank: "Rank", score: "Score", value: "Value", votes: "Votes", ratings: "Ratings", answers: "Answers", comparisons: "Pairs", wins: "Wins", labels: "Classes", label: "Label", text: "Text", item: "Item", settled: "Settled" };
const ORDER = ["rank", "item", "label", "labels", "value", "text", "score", "interval", "probability", "votes", "ratings", "answers", "comparisons", "wins", "settled"];

// The results of a campaign without an accuracy: the first rows, the best first where they have a rank.
function drawResults() {
  const place = find("#results");
  if (!place) return;
  if (!seen.consensus) return put(place, () => [element("p", { class: "hint" }, t("Nothing yet: there are no votes."))], "none");
  const between = ({ low, high }) => (typeof low === "number" ? `${amount(low)} – ${amount(high)}` : null);
  const rows = seen.consensus.items.map((row) => ({ ...row, interval: between(row), ...(typeof row.labels === "string" ? { labels: row.labels.replaceAll("|", ", ") } : {}) }));
  if (rows.length && "rank" in rows[0]) rows.sort((a, b) => a.rank - b.rank);
  const columns = ORDER.filter((name) => rows.some((row) => row[name] !== null && row[name] !== undefined));
  const cell = (value, name) => (typeof value === "number" ? (name === "probability" ? percent(value, 1) : amount(value)) : typeof value === "boolean" ? (value ? t("yes") : "") : value === "" ? t("none of them") : String(value ?? ""));
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, t(NUMBERS[name]))));
  put(place, () => [element("table", { class: "leaders" }, element("thead", {}, head), element("tbody", {}, ...rows.map((row) => element("tr", {}, ...columns.map((name) => element("td", { dir: "auto", class: name === "text" ? "long" : null }, cell(row[name], name)))))))], JSON.stringify(rows));
}

function drawStatus() {
  const s = seen.status;
  if (!s) return;
  const running = s.open === "open";
  find("#open").textContent = t((running ? s.state : s.open).replaceAll("-", " "));
  find("#open").className = `tag ${running ? (s.stop ? "warn" : "good") : "bad"}`;
  const stop = [s.sentences.stop, s.sentences.advice].filter(Boolean).map(sentence).join(". ");
  if (!over) put(find("#stop"), () => (stop ? [element("p", { class: "notice warn" }, `${stop.charAt(0).toUpperCase()}${stop.slice(1)}${/[.!?]$/.test(stop) ? "" : "."}`)] : []), stop);
  const target = s.target === null ? t("no target") : t("target {n}", { n: percent(s.target, 1) });
  const accuracy = s.accuracy_known ? `95% CI ${percent(s.accuracy_low, 1)}-${percent(s.accuracy_high, 1)}, ${target}` : type === "votes" ? t("too few votes to say; {target}", { target }) : "";
  const proven = s.sentences.proven && s.state === "target-reached"; // a look at another max_error may have proven less
  const pace = seen.throughput;
  const tiles = [
    type === "votes" ? tile(t("Accuracy"), s.accuracy_known ? percent(s.accuracy, 1) : t("not known"), accuracy) : agreementTile(),
    ...(api === whole ? [tile(t("Spent"), amount(s.spent), s.budget === null ? t("no budget set") : t("of {n}", { n: amount(s.budget) }), s.budget === null ? undefined : s.spent / s.budget)] : []),
    tile(t("Items finished"), amount(s.finished), t("of {n}, {m} with votes", { n: amount(s.items), m: amount(s.voted_on) }), s.items ? s.finished / s.items : 0),
    tile(t("Votes"), amount(s.votes), count(s.annotators, "by {n} annotator", "by {n} annotators")),
    tile(t("Pace"), pace ? t("{n} / hour", { n: amount(pace.hour) }) : "–", pace ? t("{n} in the last minute", { n: amount(pace.minute) }) : ""),
    tile(t("Queue"), amount(s.asked), t("questions with annotators now")),
    ...(s.proof ? [tile(t("Proof"), proven ? t("proven") : t("{n} of about {m}", { n: amount(s.proof.known), m: amount(s.proof.needed) }), s.sentences.proven ? sentence(s.sentences.proven) : t("gold labels of items drawn at random"), proven ? 1 : s.proof.known / s.proof.needed)] : []),
  ];
  put(find("#facts"), () => tiles, JSON.stringify([s, pace, seen.agreement]));
  if (!lead) return;
  find("#pause").textContent = s.open === "open" ? t("Pause the campaign") : t("Open the campaign");
  find("#close").textContent = t("Close it");
  find("#close").hidden = s.open === "closed";
}

function drawCharts() {
  drawResults();
  const points = seen.history || [];
  const known = points.filter((point) => point.accuracy !== null);
  const s = seen.status || {};
  const wide = (place) => Math.max(240, Math.floor(place.clientWidth));
  const pace = seen.throughput;
  const place = find("#pace");
  if (pace) put(place, () => [paceChart(pace.minutes, wide(place))], JSON.stringify([pace.minutes, wide(place)]));
  if (pace) find("#pace-words").textContent = t("{minute} in the last minute, {hour} in the last hour, {day} in the last day.", { minute: amount(pace.minute), hour: amount(pace.hour), day: amount(pace.day) });
  const curve = find("#curve");
  if (!curve) return;
  const none = t("The curve begins when there are enough votes to estimate the accuracy.");
  const options = { axis, target: s.target, budget: s.budget, width: wide(curve) };
  put(curve, () => [known.length ? accuracyChart(points, options) : element("p", { class: "hint" }, none)], JSON.stringify([options, known]));
  const rows = known.slice(-20).reverse().map((point) => element("tr", {}, ...[new Date(1000 * point.time).toLocaleTimeString("en-GB"), amount(point.votes), amount(point.spent), percent(point.accuracy, 1), `${percent(point.low, 1)}-${percent(point.high, 1)}`].map((text) => element("td", {}, text))));
  put(find("#curve-table"), () => [element("table", {}, element("thead", {}, element("tr", {}, ...[t("Time"), t("Votes"), t("Spent"), t("Accuracy"), t("95% CI")].map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...rows))], JSON.stringify(known.slice(-20)));
}

// ---------------------------------------------------------------- annotators and items

function drawLists() {
  const known = seen.flags || seen.reliability || [];
  const rows = new Map(known.map((row) => [String(row.annotator), { ...row, votes: row.votes ?? row.ratings ?? row.comparisons ?? row.answers ?? 0 }]));
  for (const [name, hour] of Object.entries(seen.throughput?.annotators || {})) if (rows.has(name)) rows.get(name).hour = hour;
  for (const row of seen.annotators || []) rows.set(String(row.annotator), { ...rows.get(String(row.annotator)), ...row });
  const order = find("#order").value;
  const options = { order, chance: classes.length ? 1 / classes.length : 0, all: showAll, pause: lead ? pausePerson : null, showAll: () => { showAll = true; drawLists(); } };
  put(find("#people"), () => peopleList([...rows.values()], options), JSON.stringify([[...rows.values()], order, showAll]));
  if (!lead) return;
  if (!find("#review")) return;
  put(find("#review"), () => (seen.review ? reviewList(seen.review, { classes, type, settle }) : [element("p", { class: "hint" }, t("Nothing yet: there are no votes."))]), JSON.stringify(seen.review));
  const looks = seen.reviews || [];
  const line = (look) => [new Date(1000 * look.time).toLocaleString("en-GB"), String(look.item), look.actor, look.answer === null ? t("opened again") : words(look.answer), look.before === null ? "" : words(look.before)];
  const head = element("tr", {}, ...[t("Time"), t("Item"), t("By"), t("Answer given"), t("Before"), ""].map((text) => element("th", { scope: "col" }, text)));
  put(find("#looks"), () => [looks.length ? element("table", {}, element("thead", {}, head), element("tbody", {}, ...looks.map((look) => element("tr", {}, ...line(look).map((text) => element("td", {}, text)), element("td", {}, look.answer === null ? null : element("button", { type: "button", class: "small", onclick: () => settle(look.item, null) }, t("Open again"))))))) : element("p", { class: "hint" }, t("None yet."))], JSON.stringify(looks));
}

async function act(text, path, body, method) {
  try {
    const result = await call(path, body, method);
    say(text);
    refresh(true);
    return result;
  } catch (error) {
    if (error.signedOut) signedOut();
    say(error.message);
    return null;
  }
}

const pausePerson = (row) => act(t(row.available ? "{name} is paused." : "{name} is asked again.", { name: row.annotator }), `${whole}/annotators?name=${encodeURIComponent(row.annotator)}`, { available: !row.available }, "PATCH");

function settle(item, label) {
  seen.review = (seen.review || []).filter((row) => row.item !== item);
  find("#review-head").tabIndex = -1;
  find("#review-head").focus();
  return act(label === null ? t("{item} is open again.", { item }) : t("{item} is settled: {said}.", { item, said: words(label) }), `${api}/reviews`, { item, answer: label });
}

// ---------------------------------------------------------------- reading

let quick = 0;
let slow = 0;
let slowWas = -1e9;

async function readQuick() {
  quick = 0;
  await Promise.all([read("status"), read("throughput"), read("history")]);
  if (over) return;
  drawStatus();
  drawCharts();
}

async function readSlow() {
  slowWas = performance.now();
  const parts = lead ? [read("annotators"), read("flags"), ...(find("#review") ? [read("review", "?limit=12"), read("reviews", "?limit=50")] : [])] : [read("reliability")];
  if (type !== "votes") parts.push(read("agreement"), read("consensus", "?limit=50"));
  await Promise.all(parts);
  slow = 0;
  if (over) return;
  drawLists();
  if (type !== "votes") drawStatus();
  drawResults();
}

function refresh(now = false) {
  if (over || document.hidden) return;
  quick ||= setTimeout(readQuick, now ? 0 : SOON);
  slow ||= setTimeout(readSlow, now ? 0 : Math.max(SOON, slowWas + LATER - performance.now()));
}

let poll = 0;
function listen() {
  const stream = new EventSource(`${api}/events`);
  stream.addEventListener("open", () => {
    clearInterval(poll);
    poll = setInterval(refresh, 12 * POLL); // the pace falls without an event
    connection(t("live"));
    refresh();
  });
  for (const kind of ["votes", "undo", "items", "annotators", "state", "standing", "settings", "proof"]) stream.addEventListener(kind, () => refresh());
  stream.addEventListener("standing", (event) => say(t("The status changed: {state}.", { state: t(JSON.parse(event.data).state.replaceAll("-", " ")) })));
  stream.addEventListener("settings", () => call(api).then((row) => Object.assign(settings, row.settings)).then(fillSettings).catch(() => {}));
  stream.addEventListener("error", () => {
    if (over) return stream.close();
    connection(t("not live; read every few seconds"));
    clearInterval(poll);
    poll = setInterval(refresh, POLL);
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2 * POLL);
    return undefined;
  });
}

// ---------------------------------------------------------------- forms

const PERCENT = new Set(["target", "gold_rate"]);
const form = find("#settings");

function fillSettings() {
  if (!form || form.contains(document.activeElement)) return;
  for (const name of ["budget", "target", "max_votes", "gold_rate"]) form.elements[name].value = settings[name] === null ? "" : Number((settings[name] * (PERCENT.has(name) ? 100 : 1)).toPrecision(6));
  form.elements.feedback.checked = settings.feedback;
}

if (lead) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const changed = {};
    for (const name of ["budget", "target", "max_votes", "gold_rate"]) {
      const text = form.elements[name].value;
      const value = text === "" ? (name === "gold_rate" ? 0 : null) : Number((Number(text) / (PERCENT.has(name) ? 100 : 1)).toPrecision(12));
      if (value !== settings[name]) changed[name] = value;
    }
    if (form.elements.feedback.checked !== settings.feedback) changed.feedback = form.elements.feedback.checked;
    if (!Object.keys(changed).length) return say(t("Nothing was changed."));
    if (await act(t("Saved."), api, changed, "PATCH")) Object.assign(settings, changed);
    return undefined;
  });
  const invite = find("#invite");
  invite.addEventListener("submit", async (event) => {
    event.preventDefault();
    const price = invite.elements.price.value === "" ? {} : { price: Number(invite.elements.price.value) };
    const invitation = await act(t("The link is shown once: send it to the annotator."), `${api}/invitations`, { annotator: invite.elements.name.value, ...price });
    if (!invitation) return;
    const field = element("input", { id: "made", readonly: true, value: invitation.link, onfocus: () => field.select() });
    const copy = element("button", { type: "button", onclick: () => navigator.clipboard.writeText(invitation.link).then(() => say(t("Copied.")), () => field.focus()) }, t("Copy"));
    find("#link").replaceChildren(element("label", { for: "made" }, t("Link for {name}", { name: invitation.annotator })), element("div", { class: "finder" }, field, copy));
    invite.reset();
  });
  find("#pause").addEventListener("click", () => {
    const state = seen.status && seen.status.open === "open" ? "paused" : "open";
    act(state === "open" ? t("The campaign is open.") : t("The campaign is paused."), `${whole}/state`, { state }, "PUT");
  });
  find("#close").addEventListener("click", () => act(t("The campaign is closed: votes are not taken. It can be opened again."), `${whole}/state`, { state: "closed" }, "PUT"));
  fillSettings();
}
find("#order").addEventListener("change", drawLists);
const menu = find(".menu");
document.addEventListener("click", (event) => {
  if (menu.open && !event.target.closest(".menu summary")) menu.open = false;
});
menu.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
for (const button of document.querySelectorAll("[data-axis]")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    for (const other of document.querySelectorAll("[data-axis]")) other.setAttribute("aria-pressed", other === button);
    drawCharts();
  });
}
new ResizeObserver(drawCharts).observe(find("#pace"));
document.addEventListener("visibilitychange", () => refresh());
refresh(true);
listen();
