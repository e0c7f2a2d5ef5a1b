// The page to make a campaign, and the page to set it up: items, people, rules, webhooks, tokens, the end.
import { call, upload } from "/static/calls.js";
import { element, find, words } from "/static/elements.js";
import { t } from "/static/messages.js";

const page = find("#setup");
const api = `/api/v1/campaigns/${page.dataset.campaign}`;
const TABLES = /\.(csv|tsv|json|jsonl|xlsx|parquet)$/i;
const WITH_CLASSES = new Set(["votes", "ordinal", "label-sets", "tags", "spans"]);
const AT_ONCE = 50; // files of one request

function say(text, bad = false) {
  find("#said").textContent = text;
  find("#said").className = text ? `notice ${bad ? "bad" : "good"}` : "";
  if (bad) find("#said").scrollIntoView({ block: "nearest" });
}

async function act(run, text) {
  try {
    const result = await run();
    if (text) say(text);
    return result;
  } catch (error) {
    say(error.signedOut ? t("Your session has ended") : error.message, true);
    return null;
  }
}

const numberOf = (text, share) => (text === "" ? null : Number((Number(text) / (share ? 100 : 1)).toPrecision(12)));

// ---------------------------------------------------------------- a new campaign

const make = find("#make");
if (make) {
  const kind = make.elements.answer_type;
  const show = () => {
    find("#of-classes").hidden = !WITH_CLASSES.has(kind.value);
    find("#of-scale").hidden = kind.value !== "ratings";
    find("#of-ties").hidden = kind.value !== "comparisons";
  };
  const others = find("#others");
  const tell = () => {
    find("#own").hidden = !others.children.length;
    make.elements.first.required = others.children.length > 0;
  };
  find("#more").addEventListener("click", () => {
    const row = find("#another").content.firstElementChild.cloneNode(true);
    row.querySelector("button").addEventListener("click", () => (row.remove(), tell()));
    others.append(row);
    tell();
    row.querySelector("input").focus();
  });
  const further = (row) => {
    const [question, type, range] = ["question", "type", "range"].map((name) => row.querySelector(`[name=${name}]`).value.trim());
    const parts = range.split(",").map((part) => part.trim()).filter(Boolean);
    const [min, max] = parts.map(Number);
    return { question, answer_type: type, ...(type === "ratings" ? { scale: parts.length ? { min, max } : null } : type === "texts" ? {} : { classes: parts }) };
  };
  kind.addEventListener("change", show);
  show();
  make.addEventListener("submit", async (event) => {
    event.preventDefault();
    const settings = { name: make.elements.name.value.trim(), answer_type: kind.value, instructions: make.elements.instructions.value };
    if (WITH_CLASSES.has(kind.value)) settings.classes = make.elements.classes.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (kind.value === "ratings") settings.scale = Object.fromEntries(["min", "max", "step"].map((name) => [name, Number(make.elements[name].value)]));
    if (kind.value === "comparisons") settings.ties = make.elements.ties.checked;
    if (others.children.length) Object.assign(settings, { question: make.elements.first.value, questions: [...others.children].map(further) });
    const row = await act(() => call("/api/v1/campaigns", settings));
    if (row) location.assign(`/campaign/${row.id}`);
  });
} else {
  setUp();
}

// ---------------------------------------------------------------- its items, people and rules

function preview(file, content) {
  const place = find("#preview");
  if (content.problem) return place.replaceChildren(element("p", { class: "notice bad" }, content.problem));
  const head = element("tr", {}, ...content.columns.map((name) => element("th", { scope: "col" }, name)));
  const rows = content.rows.map((row) => element("tr", {}, ...content.columns.map((name) => element("td", { dir: "auto" }, row[name] ?? ""))));
  const add = element("button", { type: "button", class: "primary", onclick: async () => {
    const done = await act(() => upload(`${api}/items`, file), t("The items are there."));
    if (!done) return;
    place.replaceChildren();
    listItems();
  } }, t("Add {n} items", { n: content.items }));
  const answers = content.answers ? [element("p", { class: "notice warn" }, t("This is a file of {n} answers of {m} annotators: its items are added, not its answers.", { n: content.answers.answers, m: content.answers.annotators }))] : [];
  return place.replaceChildren(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("First rows") }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))), ...answers, add);
}

async function take(files) {
  const table = files.find((file) => TABLES.test(file.name));
  if (table) {
    const content = await act(() => upload(`${api}/items?preview=true`, table));
    if (content) preview(table, content);
    return;
  }
  for (let i = 0; i < files.length; i += AT_ONCE) {
    say(t("{n} of {m} files are there.", { n: i, m: files.length }));
    if (!(await act(() => upload(`${api}/media`, ...files.slice(i, i + AT_ONCE))))) return;
  }
  await fromFolder();
}

async function fromFolder() {
  const counts = await act(() => call(`${api}/media/items`, {}));
  if (counts) say(t("{n} new items.", { n: counts.new }));
  listItems();
}

async function listItems() {
  const listed = await act(() => call(`${api}/items?limit=100&search=${encodeURIComponent(find("#search").value)}`));
  if (!listed) return;
  const rows = listed.items.map((row) => element("tr", {}, ...[String(row.item), row.votes, row.gold === null ? "" : words(row.gold), row.closed ? t("closed") : ""].map((text) => element("td", { dir: "auto" }, text)), element("td", {}, element("button", { type: "button", class: "small", onclick: async () => (await act(() => call(`${api}/items`, { items: [row.item], closed: !row.closed }, "PATCH"))) && listItems() }, row.closed ? t("Open it") : t("Close it")))));
  const head = element("tr", {}, ...[t("Item"), t("Votes"), t("Gold"), "", ""].map((text) => element("th", { scope: "col" }, text)));
  find("#items").replaceChildren(rows.length ? element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)) : element("p", { class: "hint" }, t("There is none.")));
}

// Lines of an item and its answer, as rows of [item, answer]; a first line of the words item and gold or label is left out.
function knownAnswers(text) {
  const classes = JSON.parse(page.dataset.classes);
  const rows = text.split(/\r?\n/).filter((line) => line.trim()).map((line) => {
    const at = Math.max(line.lastIndexOf(","), line.lastIndexOf("\t"), line.lastIndexOf(";"));
    return [line.slice(0, at), line.slice(at + 1)].map((part) => part.trim().replace(/^"(.*)"$/, "$1").replaceAll('""', '"'));
  });
  if (rows.length && /^(item|id)$/i.test(rows[0][0]) && /^(gold|label|answer|truth)$/i.test(rows[0][1])) rows.shift();
  const wrong = rows.find(([item, answer]) => !item || !answer);
  if (wrong) throw new Error(t("A line has no item or no answer: {line}", { line: wrong.join(" ") }));
  const value = (answer) => classes.find((name) => String(name) === answer) ?? (classes.length || answer === "" || Number.isNaN(Number(answer)) ? answer : Number(answer));
  return rows.map(([item, answer]) => [item, value(answer)]);
}

async function setGold(text) {
  const groups = new Map();
  for (const [item, answer] of knownAnswers(text)) groups.set(answer, [...(groups.get(answer) || []), item]);
  let n = 0;
  for (const [gold, items] of groups) {
    try {
      await call(`${api}/items`, { items, gold }, "PATCH");
    } catch (error) {
      if (n && !error.signedOut) error.message += ` ${t("{n} known answers are set.", { n })}`; // those of other answers
      throw error;
    }
    n += items.length;
  }
  say(t("{n} known answers are set.", { n }));
  listItems();
}

async function listHooks() {
  const hooks = (await act(() => call(`${api}/webhooks`))) || [];
  find("#hooks").replaceChildren(...hooks.map((hook) => element("p", {}, `${hook.url} `, element("button", { type: "button", class: "small", onclick: async () => (await act(() => call(`${api}/webhooks/${hook.id}`, undefined, "DELETE"))) && listHooks() }, t("Remove")))));
}

async function listTokens() {
  const rows = ((await act(() => call(`${api}/tokens`))) || []).filter((one) => !one.revoked);
  find("#tokens").replaceChildren(...rows.map((one) => element("p", {}, `${one.name} (${t(one.kind)}) `, element("button", { type: "button", class: "small", onclick: async () => (await act(() => call(`${api}/tokens/${one.id}`, undefined, "DELETE"))) && listTokens() }, t("Revoke")))));
}

function shownLink(place, label, address) {
  const field = element("input", { id: "made", readonly: true, value: address, onfocus: () => field.select() });
  const copy = element("button", { type: "button", onclick: () => navigator.clipboard.writeText(address).then(() => say(t("Copied.")), () => field.focus()) }, t("Copy"));
  place.replaceChildren(element("label", { for: "made" }, label), element("div", { class: "finder" }, field, copy));
}

function setUp() {
  const drop = find("#drop");
  find("#file").addEventListener("change", (event) => take([...event.target.files]));
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragenter" || kind === "dragover");
      if (kind === "drop") take([...event.dataTransfer.files]);
    });
  }
  find("#folder")?.addEventListener("click", fromFolder);
  find("#search").addEventListener("input", listItems);
  find("#list").addEventListener("toggle", listItems);
  const people = find("#people");
  people.addEventListener("submit", (event) => {
    event.preventDefault();
    const { quota, votes_each, practice, screen, consent, completion_code, unsure } = people.elements;
    act(() => call(api, { quota: numberOf(quota.value), votes_each: numberOf(votes_each.value), practice: Number(practice.value), screen: numberOf(screen.value, true), consent: consent.value, completion_code: completion_code.value, unsure: unsure.checked }, "PATCH"), t("Saved."));
  });
  find("#signup").addEventListener("click", async () => {
    const signup = await act(() => call(`${api}/signup`, {}), t("The link is shown once."));
    if (signup) shownLink(find("#link"), t("Sign-up link (for Prolific add ?PROLIFIC_PID=…)"), signup.link);
  });
  find("#known-file").addEventListener("change", async (event) => {
    find("#known").value = await event.target.files[0].text();
  });
  find("#gold").addEventListener("submit", (event) => {
    event.preventDefault();
    act(() => setGold(find("#known").value));
  });
  const rules = find("#rules");
  rules.addEventListener("submit", (event) => {
    event.preventDefault();
    const { budget, price, max_votes, gold_rate, target, max_error, instructions } = rules.elements;
    const settings = { budget: numberOf(budget.value), price: Number(price.value), max_votes: numberOf(max_votes.value), gold_rate: numberOf(gold_rate.value, true) ?? 0, instructions: instructions.value };
    if (target) Object.assign(settings, { target: numberOf(target.value, true), max_error: numberOf(max_error.value, true) });
    act(() => call(api, settings, "PATCH"), t("Saved."));
  });
  find("#hook").addEventListener("submit", async (event) => {
    event.preventDefault();
    const hook = await act(() => call(`${api}/webhooks`, { url: find("#url").value }));
    if (!hook) return;
    say(t("The secret that signs events, shown once: {secret}", { secret: hook.secret }));
    listHooks();
  });
  for (const button of document.querySelectorAll("[data-state]")) {
    button.addEventListener("click", async () => (await act(() => call(`${api}/state`, { state: button.dataset.state }, "PUT"))) && location.reload());
  }
  find("#remove")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await act(() => call(`${api}?confirm=${encodeURIComponent(find("#confirm").value)}`, undefined, "DELETE"))) location.assign("/");
  });
  listHooks();
  listTokens();
}
