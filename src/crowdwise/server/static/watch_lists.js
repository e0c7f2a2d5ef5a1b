// The lists of the watching page: annotators with their reliability and flags, items to review with their votes.
import { intervalDrawing } from "/static/charts.js";
import { amount, element, percent, words } from "/static/elements.js";
import { count, t } from "/static/messages.js";
import { shown } from "/static/payloads.js";

const MEASURES = ["accuracy", "reliability", "sensitivity", "agreement"]; // the first that a row has is drawn
const SHOWN = 25;

const ci = (low, high) => ` (${t("95% CI {low} to {high}", { low: amount(low), high: amount(high) })})`;

// What is known of the reliability of an annotator, drawn and in words.
function measured(row, chance) {
  const name = MEASURES.find((one) => typeof row[one] === "number");
  if (name) {
    const [low, high] = [row[`${name}_low`] ?? null, row[`${name}_high`] ?? null];
    const interval = low === null ? "" : `, 95% CI ${percent(low)}-${percent(high)}`;
    return [intervalDrawing(row[name], low, high, name === "accuracy" ? chance : 0), element("span", { class: "hint" }, `${t(name)} ${percent(row[name])}${interval}`)];
  }
  const facts = ["noise", "bias"].filter((one) => typeof row[one] === "number");
  const text = facts.map((one) => `${t(one)} ${amount(row[one])}${ci(row[`${one}_low`], row[`${one}_high`])}`).join(", ");
  return [element("span", { class: "hint" }, text || t("no estimate yet"))];
}

function flagsOf(row) {
  return (row.flags || []).map((flag) => element("span", { class: flag.kind === "few-votes" ? "tag" : "tag warn", title: flag.words }, t(flag.title), element("span", { class: "hidden" }, `: ${flag.words}`)));
}

const ORDERS = {
  suspicion: (a, b) => (b.suspicion ?? -1) - (a.suspicion ?? -1) || b.votes - a.votes,
  votes: (a, b) => b.votes - a.votes,
  name: (a, b) => String(a.annotator).localeCompare(String(b.annotator), "en", { numeric: true }),
};

// pause(row) is there for leads only.
export function peopleList(rows, { order, chance, pause, all, showAll }) {
  if (!rows.length) return [element("p", { class: "hint" }, t("No annotators yet: invite one."))];
  const sorted = [...rows].sort(ORDERS[order]);
  const entries = sorted.slice(0, all ? undefined : SHOWN).map((row) => {
    const name = element("span", { class: "person" }, element("strong", {}, String(row.annotator)), row.available === false ? element("span", { class: "tag bad" }, t("paused")) : null);
    const facts = [count(row.votes, "{n} vote", "{n} votes")];
    if (row.seconds) facts.push(t("{n} s each", { n: row.seconds.toFixed(1) }));
    if (row.hour) facts.push(t("{n} in the last hour", { n: amount(row.hour) }));
    if (typeof row.price === "number") facts.push(t("price {n}", { n: amount(row.price) }));
    const button = pause && row.available !== undefined ? element("button", { type: "button", class: "small", "data-focus": `pause ${row.annotator}`, onclick: () => pause(row) }, row.available ? t("Pause") : t("Resume"), element("span", { class: "hidden" }, ` ${row.annotator}`)) : null;
    return element("li", {}, name, element("span", { class: "hint" }, facts.join(" · ")), element("div", { class: "measure" }, ...measured(row, chance)), element("div", { class: "flags" }, ...flagsOf(row)), button);
  });
  const more = sorted.length > entries.length ? [element("button", { type: "button", onclick: showAll }, t("Show all {n}", { n: sorted.length }))] : [];
  return [element("ul", { class: "people" }, ...entries), ...more];
}

// A control for the right answer, and what it says.
function rightAnswer(row, { classes, type }, attributes) {
  if (type === "label-sets") {
    const boxes = classes.map((name) => element("input", { type: "checkbox", checked: (row.label || []).map(String).includes(String(name)) }));
    return [element("div", { role: "group", "aria-labelledby": `${attributes.id}-name`, ...attributes }, ...classes.map((name, i) => element("label", { class: "inline" }, boxes[i], String(name)))), () => classes.filter((_, i) => boxes[i].checked)];
  }
  if (!classes.length) {
    const box = element(type === "texts" ? "textarea" : "input", { ...attributes, ...(type === "texts" ? {} : { type: "number", step: "any" }), required: true });
    box.value = typeof row.label === "number" ? Number(row.label.toPrecision(4)) : (row.label ?? "");
    return [box, () => (type === "texts" ? box.value : Number(box.value))];
  }
  const select = element("select", attributes, ...classes.map((name) => element("option", { selected: String(name) === String(row.label) }, String(name))));
  return [select, () => classes[select.selectedIndex]];
}

function surely(row) {
  if (typeof row.probability === "number") return ` ${t("with probability {n}.", { n: percent(row.probability) })} `;
  return typeof row.low === "number" ? `${ci(row.low, row.high)}. ` : ". ";
}

// settle(item, label) writes a second look; it counts for no annotator's accuracy.
export function reviewList(rows, { classes, type, settle }) {
  if (!rows.length) return [element("p", { class: "hint" }, t("Nothing is in doubt."))];
  const entries = rows.map((row) => {
    const id = `settle-${encodeURIComponent(row.item)}`;
    const [control, right] = rightAnswer(row, { classes, type }, { id, "data-focus": `settle ${row.item}` });
    const of = () => element("span", { class: "hidden" }, ` ${t("for {item}", { item: row.item })}`);
    const accept = element("button", { type: "button", class: "primary", onclick: () => settle(row.item, row.label) }, t("Accept"), of());
    const give = element("button", { type: "button", onclick: () => control.reportValidity?.() !== false && settle(row.item, right()) }, t("Correct"), of());
    const votes = row.given.map((vote) => element("li", { class: words(vote.label) === words(row.label) ? "" : "against" }, element("span", { class: "hint" }, `${vote.annotator} `), words(vote.label)));
    if (row.unsure) votes.push(element("li", { class: "against" }, t("{n} did not know", { n: row.unsure })));
    const answer = typeof row.label === "number" ? amount(row.label) : words(row.label);
    return element("li", { class: "doubt" },
      element("div", { class: "about" }, element("h3", {}, String(row.item)), element("div", { class: "question small" }, ...shown(row.payload, ""))),
      element("div", {}, element("p", {}, `${t("Answer given")} `, element("strong", { dir: "auto" }, answer), surely(row), element("span", { class: "hint" }, row.why || "")), element("ul", { class: "given", "aria-label": t("Votes on {item}", { item: row.item }) }, ...votes)),
      element("div", { class: "adjudicate" }, element(type === "label-sets" ? "span" : "label", { for: type === "label-sets" ? null : id, id: `${id}-name` }, t("The right answer")), element("div", { class: "actions" }, accept, control, give)),
    );
  });
  return [element("ul", { class: "doubts" }, ...entries)];
}
