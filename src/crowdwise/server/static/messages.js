// Texts in the language of the page: t("Question {n}", { n }). The catalogue is in the page.
const catalogue = JSON.parse(document.getElementById("messages")?.textContent || "{}");

export function t(text, values = {}) {
  return Object.entries(values).reduce((out, [name, value]) => out.replaceAll(`{${name}}`, String(value)), catalogue[text] ?? text);
}

// The form for one, or for several.
export const count = (n, one, several) => t(n === 1 ? one : several, { n });

// A sentence of the server: its pattern, and what is put into it, sentences too.
export const sentence = ([pattern, values]) => t(pattern, Object.fromEntries(Object.entries(values).map(([name, one]) => [name, sentence(one)])));
