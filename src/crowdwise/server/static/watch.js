import { call } from "/static/calls.js";

const page = document.querySelector("#watch");
const api = `/api/v1/campaigns/${page.dataset.campaign}`;
const percent = (x) => (x === null ? "unknown" : `${(100 * x).toFixed(1)}%`);

async function refresh() {
  const s = await call(`${api}/status`);
  document.querySelector("#stands").textContent = s.stop ? `${s.state}: ${s.stop}. ${s.advice || ""}` : s.state;
  const facts = {
    Votes: s.votes,
    Items: `${s.items} (${s.finished} finished)`,
    Annotators: s.annotators,
    Spent: s.budget === null ? s.spent : `${s.spent} of ${s.budget}`,
    Accuracy: s.accuracy_known ? `${percent(s.accuracy)} (95% CI ${percent(s.accuracy_low)}-${percent(s.accuracy_high)})` : "not known yet",
    Target: percent(s.target),
  };
  const list = document.querySelector("#facts");
  list.replaceChildren();
  for (const [name, value] of Object.entries(facts)) {
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    list.append(term, fact);
  }
}

const form = document.querySelector("#invite");
if (form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const link = document.querySelector("#link");
    try {
      link.textContent = (await call(`${api}/invitations`, { annotator: form.elements.name.value })).link;
    } catch (error) {
      link.textContent = error.message;
    }
  });
}
refresh();
setInterval(refresh, 3000);
