// Elements made from text, never from HTML: what people wrote cannot become markup.
import { t } from "/static/messages.js";

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false || name === "dir") continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  if (attributes && attributes.dir) node.setAttribute("dir", attributes.dir); // last: a browser looks at all there is after each child
  return node;
}

export function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export const find = (selector) => document.querySelector(selector);

// A name or an answer in words: lists are joined, an empty set has a word.
export function words(value) {
  if (Array.isArray(value)) return value.length ? value.map(String).join(", ") : t("none of them");
  return String(value);
}

export const percent = (x, digits = 0) => (x === null || x === undefined ? "unknown" : `${(100 * x).toFixed(digits)}%`);

export function amount(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  return x.toLocaleString("en", size < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: size < 100 ? 2 : 0 });
}
