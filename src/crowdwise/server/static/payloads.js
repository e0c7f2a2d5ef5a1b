// What is shown of an item: text, markdown, images, sound, and anything else as names and values.
import { element } from "/static/elements.js";
import { markdown, safeAddress } from "/static/markdown.js";

function failed(what) {
  return element("p", { class: "notice bad" }, `${what} could not be loaded. Skip the question where you cannot answer without it.`);
}

function image(address, alt) {
  const made = element("img", { src: address, alt: alt || "The image to label", decoding: "async" });
  made.addEventListener("error", () => made.replaceWith(failed("The image")));
  return made;
}

function sound(address, alt) {
  const made = element("audio", { src: address, controls: true, preload: "metadata", "aria-label": alt || "The recording to label" });
  made.addEventListener("error", () => made.replaceWith(failed("The recording")));
  return made;
}

const MADE = {
  text: (value) => [element("p", { class: "text" }, String(value))],
  markdown: (value) => [element("div", { class: "markdown" }, ...markdown(value))],
  image: (value, payload) => [safeAddress(value, ["https:", "http:", "data:"]) ? image(value, payload.alt) : failed("The image")],
  audio: (value, payload) => [safeAddress(value, ["https:", "http:"]) ? sound(value, payload.alt) : failed("The recording")],
};

function asObject(payload) {
  return payload !== null && typeof payload === "object" && !Array.isArray(payload) ? payload : { text: payload };
}

// The elements of a payload; an item without one is shown by its name.
export function shown(payload, item) {
  const known = asObject(payload);
  const out = [];
  const facts = [];
  for (const [name, value] of Object.entries(known)) {
    if (value === null || name === "alt" || name === "item") continue;
    if (Object.hasOwn(MADE, name)) out.push(...MADE[name](value, known));
    else facts.push(element("div", {}, element("dt", {}, name), element("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value))));
  }
  if (facts.length) out.push(element("dl", { class: "values" }, ...facts));
  return out.length ? out : [element("p", { class: "text" }, String(known.item ?? item ?? ""))];
}

// A few words of a payload, to refer to it.
export function excerpt(payload, item) {
  const known = asObject(payload);
  const sides = ["left", "right"].filter((side) => known[side] !== undefined && known[side] !== null);
  if (sides.length) return sides.map((side) => excerpt(known[side])).join(" / ");
  const text = String(known.text ?? known.markdown ?? known.alt ?? known.item ?? item ?? "");
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
