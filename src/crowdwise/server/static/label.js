import { call } from "/static/calls.js";

const page = document.querySelector("#label");
const api = `/api/v1/campaigns/${page.dataset.campaign}`;
const kind = page.dataset.type;
const classes = JSON.parse(page.dataset.classes);
const scale = JSON.parse(page.dataset.scale);
const question = document.querySelector("#question");
const answers = document.querySelector("#answers");
const said = document.querySelector("#said");
const skip = document.querySelector("#skip");
let now = null;
let since = 0;

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shown(payload) {
  const part = element("div");
  if (typeof payload === "string") payload = { text: payload };
  for (const [name, value] of Object.entries(payload)) {
    if (name === "image") {
      const image = element("img");
      image.src = value;
      image.alt = payload.alt || "The image to label";
      part.append(image);
    } else if (name === "audio") {
      const audio = element("audio");
      audio.src = value;
      audio.controls = true;
      part.append(audio);
    } else if (name !== "alt" && name !== "item") {
      part.append(element("p", typeof value === "object" ? JSON.stringify(value) : String(value)));
    }
  }
  return part;
}

function button(text, label, key) {
  const made = element("button", key ? `${key} ${text}` : text);
  made.type = "button";
  made.dataset.key = key || "";
  made.addEventListener("click", () => answer(label));
  answers.append(made);
}

function draw() {
  question.replaceChildren();
  answers.replaceChildren();
  skip.hidden = !now;
  if (!now) return;
  since = performance.now();
  if (kind === "comparisons") {
    const order = now.first === "right" ? ["right", "left"] : ["left", "right"];
    order.forEach((side, i) => {
      question.append(shown(now.payload[side]));
      button(i ? "The second" : "The first", side, String(i + 1));
    });
    if (page.dataset.ties === "true") button("Equal", "tie", "3");
  } else {
    question.append(shown(now.payload));
    if (!Object.keys(now.payload).length) question.append(element("p", String(now.item)));
    if (kind === "ratings") {
      const slider = element("input");
      Object.assign(slider, { type: "range", min: scale.min, max: scale.max, step: scale.step, ariaLabel: "Your rating" });
      const value = element("output", slider.value);
      slider.addEventListener("input", () => (value.textContent = slider.value));
      answers.append(slider, value);
      const done = element("button", "Answer");
      done.type = "button";
      done.addEventListener("click", () => answer(Number(slider.value)));
      answers.append(done);
    } else if (kind === "label-sets") {
      const boxes = classes.map((name) => {
        const label = element("label", ` ${name}`);
        const box = element("input");
        box.type = "checkbox";
        label.prepend(box);
        answers.append(label);
        return [box, name];
      });
      const done = element("button", "Answer");
      done.type = "button";
      done.addEventListener("click", () => answer(boxes.filter(([box]) => box.checked).map(([, name]) => name)));
      answers.append(done);
    } else {
      classes.forEach((name, i) => button(String(name), name, i < 9 ? String(i + 1) : ""));
    }
  }
  question.focus();
}

async function next() {
  const found = await call(`${api}/next`);
  now = found.questions[0] || null;
  draw();
  if (!now) said.textContent = `Nothing to do now: ${found.why_none || found.state}.`;
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    said.textContent = error.message;
  }
}

function answer(label) {
  if (!now) return;
  const body = { item: now.item, label, ticket: now.ticket, id: crypto.randomUUID(), seconds: (performance.now() - since) / 1000 };
  now = null;
  guarded(async () => {
    const found = await call(`${api}/votes`, body);
    const feedback = (found.feedback || [])[0];
    said.textContent = feedback ? (feedback.correct ? "Right." : `The known answer is ${feedback.expected}.`) : "";
    document.querySelector("#done").textContent = (await call(`${api}/progress`)).done;
    await next();
  });
}

skip.addEventListener("click", () => guarded(async () => {
  await call(`${api}/skip`, { item: now.item, reason: "" });
  await next();
}));
document.querySelector("#undo").addEventListener("click", () => guarded(async () => {
  await call(`${api}/undo`, {});
  document.querySelector("#done").textContent = (await call(`${api}/progress`)).done;
  said.textContent = "Your last answer was taken back.";
  await next();
}));
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const found = answers.querySelector(`button[data-key="${CSS.escape(event.key)}"]`);
  if (found) found.click();
});
guarded(next);
