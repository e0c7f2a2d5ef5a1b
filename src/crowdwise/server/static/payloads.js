// What is shown of an item: context first, then text, markdown, images, sound and files, then names and values.
import { element } from "/static/elements.js";
import { markdown, safeAddress } from "/static/markdown.js";
import { t } from "/static/messages.js";

function failed(text) {
  return element("p", { class: "notice bad" }, text, " ", t("Skip the question where you cannot answer without it."));
}

const ZOOM = 1.5;
const MOST = 8;

// An image that can be zoomed (buttons, + and -, the wheel with Ctrl, a double click) and moved where it is.
function image(address, alt) {
  const picture = element("img", { src: address, alt: alt || t("The image to label"), decoding: "async", draggable: "false" });
  let [scale, x, y] = [1, 0, 0];
  let held = null;
  const draw = () => {
    x = Math.min(0, Math.max(x, viewer.clientWidth * (1 - scale)));
    y = Math.min(0, Math.max(y, viewer.clientHeight * (1 - scale)));
    picture.style.transform = scale === 1 ? "" : `translate(${x}px, ${y}px) scale(${scale})`;
    viewer.classList.toggle("zoomed", scale > 1);
    reset.hidden = scale === 1;
  };
  const zoom = (by, at) => {
    const place = viewer.getBoundingClientRect();
    const [px, py] = at ? [at.clientX - place.left, at.clientY - place.top] : [place.width / 2, place.height / 2];
    const next = Math.min(MOST, Math.max(1, scale * by));
    [x, y] = [px - ((px - x) * next) / scale, py - ((py - y) * next) / scale];
    scale = next;
    draw();
  };
  const tool = (sign, name, run, more = {}) => element("button", { type: "button", class: "small", "aria-label": name, onclick: run, ...more }, sign);
  const reset = tool("1:1", t("Whole image"), () => zoom(0), { hidden: true });
  const viewer = element("div", { class: "viewer" }, picture, element("div", { class: "tools" }, tool("+", t("Zoom in"), () => zoom(ZOOM), { "data-zoom": "in" }), tool("−", t("Zoom out"), () => zoom(1 / ZOOM), { "data-zoom": "out" }), reset));
  viewer.addEventListener("wheel", (event) => event.ctrlKey && (event.preventDefault(), zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event)), { passive: false });
  picture.addEventListener("dblclick", (event) => zoom(scale > 1 ? 0 : 2 * ZOOM, event));
  picture.addEventListener("pointerdown", (event) => {
    if (scale === 1) return;
    held = [event.clientX - x, event.clientY - y];
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (!held) return;
    [x, y] = [event.clientX - held[0], event.clientY - held[1]];
    draw();
  });
  for (const kind of ["pointerup", "pointercancel"]) picture.addEventListener(kind, () => (held = null));
  picture.addEventListener("error", () => viewer.replaceWith(failed(t("The image could not be loaded."))));
  return viewer;
}

const SPEEDS = [0.75, 1, 1.25, 1.5, 2];

function sound(address, alt) {
  const player = element("audio", { src: address, controls: true, preload: "metadata", "aria-label": alt || t("The recording to label") });
  const speed = element("select", { id: "speed" }, ...SPEEDS.map((one) => element("option", { value: one, selected: one === 1 }, `${one}×`)));
  speed.addEventListener("change", () => (player.playbackRate = Number(speed.value)));
  const box = element("div", { class: "sound" }, player, element("div", { class: "finder" }, element("label", { for: "speed" }, t("Speed")), speed, element("span", { class: "hint" }, t("p plays and stops, b goes back 3 seconds"))));
  player.addEventListener("error", () => box.replaceWith(failed(t("The recording could not be loaded."))));
  return box;
}

// A text file of the media folder.
function file(address) {
  const place = element("p", { class: "text", dir: "auto" }, "…");
  fetch(address).then((answer) => (answer.ok ? answer.text() : Promise.reject(answer)), Promise.reject).then((text) => (place.textContent = text), () => place.replaceWith(failed(t("The text could not be loaded."))));
  return place;
}

const MADE = {
  text: (value) => [element("p", { class: "text", dir: "auto" }, String(value))],
  markdown: (value) => [element("div", { class: "markdown", dir: "auto" }, ...markdown(value))],
  image: (value, payload) => [safeAddress(value, ["https:", "http:", "data:"]) ? image(value, payload.alt) : failed(t("The image could not be loaded."))],
  audio: (value, payload) => [safeAddress(value, ["https:", "http:"]) ? sound(value, payload.alt) : failed(t("The recording could not be loaded."))],
  file: (value) => [safeAddress(value) ? file(value) : failed(t("The text could not be loaded."))],
};
const BEFORE = ["context", "prompt", "question"]; // what one reads before the rest
const APART = new Set(["alt", "item", "left", "right", "options", "tokens", ...BEFORE]);

function asObject(payload) {
  return payload !== null && typeof payload === "object" && !Array.isArray(payload) ? payload : { text: payload };
}

// A field name as a label: "source_url" becomes "Source url".
const label = (name) => `${name.charAt(0).toUpperCase()}${name.slice(1)}`.replaceAll(/[_-]+/g, " ");

// The elements of a payload; an item without one is shown by its name.
export function shown(payload, item) {
  const known = asObject(payload);
  const out = BEFORE.filter((name) => known[name]).map((name) => element("div", { class: "context", dir: "auto" }, element("span", { class: "name" }, t(label(name))), String(known[name])));
  const facts = [];
  for (const [name, value] of Object.entries(known)) {
    if (value === null || APART.has(name)) continue;
    if (Object.hasOwn(MADE, name)) out.push(...MADE[name](value, known));
    else facts.push(element("div", {}, element("dt", {}, label(name)), element("dd", { dir: "auto" }, typeof value === "object" ? JSON.stringify(value) : String(value))));
  }
  if (facts.length) out.push(element("dl", { class: "values" }, ...facts));
  return out.length || known.options || known.tokens ? out : [element("p", { class: "text", dir: "auto" }, String(known.item ?? item ?? ""))];
}

// A few words of a payload, to refer to it.
export function excerpt(payload, item) {
  const known = asObject(payload);
  const sides = ["left", "right"].filter((side) => known[side] !== undefined && known[side] !== null);
  if (sides.length) return sides.map((side) => excerpt(known[side])).join(" / ");
  const text = String(known.text ?? known.markdown ?? known.alt ?? known.item ?? item ?? "");
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
