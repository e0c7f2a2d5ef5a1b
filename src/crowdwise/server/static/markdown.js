// Markdown without HTML: headings, paragraphs, lists, quotes, tables, code, emphasis, links and images. Tags stay text.
import { element } from "/static/elements.js";

const INLINE = /`([^`]+)`|!\[([^\]]*)\]\(([^)\s]+)\)|\[([^\]]+)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|__(.+?)__|\*([^*\s][^*]*)\*|(?<!\w)_([^_\s][^_]*)_(?!\w)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?])/g;

// An address that a page may lead to or show; a script is none.
export function safeAddress(text, schemes = ["https:", "http:"]) {
  try {
    return schemes.includes(new URL(text, location.href).protocol);
  } catch {
    return false;
  }
}

const LONG = 4000; // characters of a line up to which signs in it mean something
const DEEP = 8; // quotes in quotes

const link = (address, ...words) => element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...words);

// A table: cells between bars; a second line of dashes makes the first one its head.
function table(lines) {
  const rows = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  const headed = rows.length > 1 && rows[1].every((cell) => /^:?-+:?$/.test(cell));
  const cells = (row, kind) => element("tr", {}, ...row.map((cell) => element(kind, kind === "th" ? { scope: "col" } : {}, ...inline(cell))));
  const head = headed ? [element("thead", {}, cells(rows[0], "th"))] : [];
  return [element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, element("table", {}, ...head, element("tbody", {}, ...rows.slice(headed ? 2 : 0).map((row) => cells(row, "td")))))];
}

function inline(text) {
  if (text.length > LONG) return [text];
  const out = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const [whole, code, alt, image, name, address, strong, strong2, weak, weak2, bare] = match;
    if (code) out.push(element("code", {}, code));
    else if (image) out.push(safeAddress(image) ? element("img", { src: image, alt }) : whole);
    else if (name) out.push(safeAddress(address) ? link(address, ...inline(name)) : whole);
    else if (bare) out.push(link(bare, bare));
    else if (strong || strong2) out.push(element("strong", {}, ...inline(strong || strong2)));
    else out.push(element("em", {}, ...inline(weak || weak2)));
  }
  out.push(text.slice(last));
  return out.filter((part) => part !== "");
}

// Lines of one kind become one element: the first kind whose pattern a line matches.
const KINDS = [
  [/^\s*$/, () => []],
  [/^(?:-{3,}|\*{3,})\s*$/, () => [element("hr")]],
  [/^#{1,6} /, (lines) => lines.map((line) => element(line.startsWith("# ") ? "h3" : "h4", {}, ...inline(line.replace(/^#+ /, ""))))],
  [/^\s*[-*+] /, (lines) => [element("ul", {}, ...lines.map((line) => element("li", {}, ...inline(line.replace(/^\s*[-*+] /, "")))))]],
  [/^\s*\d+[.)] /, (lines) => [element("ol", { start: parseInt(lines[0], 10) }, ...lines.map((line) => element("li", {}, ...inline(line.replace(/^\s*\d+[.)] /, "")))))]],
  [/^\s*\|.*\|\s*$/, table],
  [/^>/, (lines, depth) => [element("blockquote", {}, ...(depth < DEEP ? markdown(lines.map((line) => line.replace(/^> ?/, "")).join("\n"), depth + 1) : [lines.join("\n")]))]],
  [/^/, (lines) => [element("p", {}, ...lines.flatMap((line, i) => (i ? [element("br"), ...inline(line)] : inline(line))))]],
];

export function markdown(text, depth = 0) {
  const out = [];
  const lines = String(text).replaceAll("\r\n", "\n").split("\n");
  const kindOf = (line) => KINDS.findIndex(([pattern]) => pattern.test(line));
  for (let i = 0; i < lines.length; ) {
    let end = i + 1;
    if (lines[i].startsWith("```")) {
      while (end < lines.length && !lines[end].startsWith("```")) end += 1;
      out.push(element("pre", { tabindex: 0 }, element("code", {}, lines.slice(i + 1, end).join("\n"))));
      i = end + 1;
      continue;
    }
    const kind = kindOf(lines[i]);
    while (end < lines.length && kindOf(lines[end]) === kind && !lines[end].startsWith("```")) end += 1;
    for (const part of KINDS[kind][1](lines.slice(i, end), depth)) out.push(part);
    i = end;
  }
  return out;
}
