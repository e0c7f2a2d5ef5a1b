// Markdown of a page that has nothing else to do.
import { markdown } from "/static/markdown.js";

for (const place of document.querySelectorAll(".markdown")) place.replaceChildren(...markdown(place.textContent));
