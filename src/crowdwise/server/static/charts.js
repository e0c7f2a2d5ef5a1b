// Drawings of the watching page, at the width that there is; colours are in app.css.
import { t } from "/static/messages.js";
import { amount, drawn, percent } from "/static/elements.js";

const HEIGHT = 260;
const SPACE = { left: 44, right: 14, top: 14, bottom: 34 };

// Round numbers that cover a span.
export function ticks(low, high, most) {
  const raw = (high - low) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) out.push(i * step + 0); // not -0
  return out;
}

const clock = (seconds, long) => new Date(1000 * seconds).toLocaleString("en-GB", long ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit" });

// Accuracy with its interval along money or time, with the target and the budget as lines.
export function accuracyChart(points, { axis, target, budget, width }) {
  const known = points.filter((point) => point.accuracy !== null);
  const money = axis === "spent";
  const last = known.at(-1);
  const x0 = money ? 0 : known[0].time;
  const x1 = money ? Math.max(last.spent, Math.min(budget ?? 0, 4 * last.spent), 1) : Math.max(last.time, x0 + 60);
  const lowest = Math.min(...known.map((point) => point.low), target ?? 1);
  const y0 = Math.max(0, Math.floor(10 * (lowest - 0.02)) / 10);
  const right = width - SPACE.right;
  const bottom = HEIGHT - SPACE.bottom;
  const x = (value) => SPACE.left + ((value - x0) / (x1 - x0)) * (right - SPACE.left);
  const y = (value) => bottom - ((value - y0) / (1 - y0)) * (bottom - SPACE.top);
  const along = (point) => x(money ? point.spent : point.time);
  const path = (name) => known.map((point) => `${along(point).toFixed(1)},${y(point[name]).toFixed(1)}`);
  const parts = [];
  for (const value of ticks(y0, 1, 5)) {
    parts.push(drawn("line", { class: "grid", x1: SPACE.left, x2: right, y1: y(value), y2: y(value) }));
    parts.push(drawn("text", { class: "tick", x: SPACE.left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value)));
  }
  const most = Math.max(2, Math.floor(width / (money ? 80 : 130)));
  const long = x1 - x0 > 72000;
  const places = money ? ticks(x0, x1, most) : Array.from({ length: most }, (_, i) => x0 + ((x1 - x0) * i) / (most - 1));
  places.forEach((value, i) => {
    const anchor = i && i === places.length - 1 && x(value) > right - 30 ? "end" : i || money ? "middle" : "start";
    parts.push(drawn("text", { class: "tick", x: x(value), y: HEIGHT - 14, "text-anchor": anchor }, money ? amount(value) : clock(value, long)));
  });
  parts.push(drawn("polygon", { class: "band", points: [...path("high"), ...path("low").reverse()].join(" ") }));
  parts.push(drawn("polyline", { class: "curve", points: path("accuracy").join(" ") }));
  parts.push(drawn("line", { class: "now", x1: along(last), x2: along(last), y1: y(last.low), y2: y(last.high) }));
  parts.push(drawn("circle", { class: "dot", cx: along(last), cy: y(last.accuracy), r: 4 }));
  if (target) {
    parts.push(drawn("line", { class: "target", x1: SPACE.left, x2: right, y1: y(target), y2: y(target) }));
    parts.push(drawn("text", { class: "name", x: SPACE.left + 6, y: y(target) - 5 }, t("target {n}", { n: percent(target, 1) })));
  }
  if (money && budget && budget <= x1) {
    parts.push(drawn("line", { class: "target", x1: x(budget), x2: x(budget), y1: SPACE.top, y2: bottom }));
    parts.push(drawn("text", { class: "name", x: x(budget) - 6, y: bottom - 6, "text-anchor": "end" }, t("budget {n}", { n: amount(budget) })));
  }
  const label = t("Estimated accuracy {n}, 95% CI {low} to {high}, after {spent} spent", { n: percent(last.accuracy, 1), low: percent(last.low, 1), high: percent(last.high, 1), spent: amount(last.spent) });
  return drawn("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label }, ...parts);
}

// One bar for each of the last 60 minutes.
export function paceChart(minutes, width) {
  const most = Math.max(...minutes, 1);
  const bottom = HEIGHT - SPACE.bottom;
  const step = (width - SPACE.left - SPACE.right) / minutes.length;
  const y = (value) => bottom - (value / most) * (bottom - SPACE.top);
  const parts = [];
  for (const value of ticks(0, most, 4)) {
    parts.push(drawn("line", { class: "grid", x1: SPACE.left, x2: width - SPACE.right, y1: y(value), y2: y(value) }));
    parts.push(drawn("text", { class: "tick", x: SPACE.left - 6, y: y(value) + 4, "text-anchor": "end" }, amount(value)));
  }
  minutes.forEach((value, i) => {
    if (value) parts.push(drawn("rect", { class: "bar", x: SPACE.left + i * step + 0.5, y: y(value), width: Math.max(1, step - 1), height: bottom - y(value) }));
  });
  parts.push(drawn("text", { class: "tick", x: SPACE.left, y: HEIGHT - 14 }, t("60 minutes ago")));
  parts.push(drawn("text", { class: "tick", x: width - SPACE.right, y: HEIGHT - 14, "text-anchor": "end" }, t("now")));
  const label = t("{n} votes in the last hour, at most {most} in a minute", { n: minutes.reduce((sum, value) => sum + value, 0), most: Math.max(...minutes) });
  return drawn("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label }, ...parts);
}

// An estimate with its interval between 0 and 1, and where guessing would be.
export function intervalDrawing(value, low, high, chance) {
  const at = (share) => `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;
  const parts = [drawn("rect", { class: "track", x: 0, y: 7, width: "100%", height: 2 })];
  if (chance) parts.push(drawn("line", { class: "chance", x1: at(chance), x2: at(chance), y1: 1, y2: 15 }));
  if (low !== null && high !== null) parts.push(drawn("rect", { class: "between", x: at(low), y: 5, width: at(high - low), height: 6, rx: 3 }));
  parts.push(drawn("circle", { class: "dot", cx: at(value), cy: 8, r: 4.5 }));
  return drawn("svg", { class: "interval", width: "100%", height: 16, "aria-hidden": "true", focusable: "false" }, ...parts);
}
