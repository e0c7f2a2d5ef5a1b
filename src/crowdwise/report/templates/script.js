"use strict";
(() => {
  const root = document.documentElement, $ = (s, at = document) => at.querySelector(s), $$ = (s, at = document) => [...at.querySelectorAll(s)];
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* a page from the disk may have no store */ } };
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

  // Dark and light: as the system, until a choice is made.
  const button = $("#theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
  const chosen = kept("crowdwise-theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; keep("crowdwise-theme", root.dataset.theme); label(); });
  dark.addEventListener("change", label);
  label();

  // Sorting: a button in every heading; numbers by data-v, words as they read. What is missing stays last.
  const collator = new Intl.Collator(undefined, { numeric: true });
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v !== undefined ? (cell.dataset.v === "" ? null : Number(cell.dataset.v)) : cell.textContent.trim();
  };
  for (const table of $$("table[data-sortable]")) {
    $$("thead th[data-sort]", table).forEach((head) => {
      const inner = document.createElement("button");
      inner.type = "button";
      inner.append(...head.childNodes);
      head.append(inner);
      inner.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "ascending" || (!head.hasAttribute("aria-sort") && head.dataset.sort === "down");
        $$("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "descending" : "ascending");
        const column = head.cellIndex, body = table.tBodies[0], rows = [...body.rows].map((row) => [value(row, column), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
          return up ? -order : order;
        });
        body.append(...rows.map(([, row]) => row));
        refresh();
      });
    });
  }

  // Filtering, and showing a few rows until asked for all.
  const people = $("#people"), FEW = 25;
  let all = false;
  function refresh() {
    if (!people) return;
    const words = $("#filter").value.trim().toLowerCase(), verdict = $("#verdict").value;
    let found = 0, shown = 0;
    for (const row of people.tBodies[0].rows) {
      const fits = (!verdict || row.dataset.verdict === verdict) && (!words || row.dataset.text.includes(words));
      found += fits;
      row.hidden = !fits || (!all && found > FEW);
      shown += !row.hidden;
    }
    $("#shown").textContent = found === 0 ? "No annotator fits." : shown < found ? `${shown} of ${found} shown` : `${found} shown`;
    $("#more").hidden = all || found <= FEW;
  }
  if (people) {
    $("#people-tools").hidden = false;
    $("#filter").addEventListener("input", refresh);
    $("#verdict").addEventListener("change", refresh);
    $("#more").addEventListener("click", () => { all = true; refresh(); });
    refresh();
  }

  const cards = $$("#item-list > li"), moreItems = $("#more-items"), MOST = 12;
  if (cards.length && $("#item-tools")) {
    let every = false;
    const show = () => {
      const words = $("#item-filter").value.trim().toLowerCase(), label = $("#item-label").value, under = Number($("#item-doubt").value);
      let found = 0;
      for (const card of cards) {
        const fits = (!label || card.dataset.label === label) && (under === 1 || Number(card.dataset.p) < under) && (!words || card.dataset.text.includes(words));
        found += fits;
        card.hidden = !fits || (!every && found > MOST);
      }
      $("#items-shown").textContent = found === 0 ? "No item fits." : `${every ? found : Math.min(found, MOST)} of ${cards.length} shown`;
      moreItems.hidden = every || found <= MOST;
    };
    $("#item-tools").hidden = cards.length < 2;
    for (const name of ["#item-filter", "#item-label", "#item-doubt"]) $(name).addEventListener("input", show);
    moreItems.addEventListener("click", () => { every = true; const next = cards.find((card) => card.hidden); show(); if (next) { next.tabIndex = -1; next.focus(); } });
    show();
  }

  // What more labels cost.
  const prices = $("#price-tools");
  if (prices) {
    prices.hidden = false;
    prices.addEventListener("input", () => {
      const price = { votes: $("#vote-price").valueAsNumber, gold: $("#gold-price").valueAsNumber };
      const any = Object.values(price).some((x) => x >= 0);
      for (const cell of $$("#more-labels .cost")) {
        cell.hidden = !any;
        if (cell.dataset.what) cell.textContent = price[cell.dataset.what] >= 0 ? (price[cell.dataset.what] * cell.dataset.answers).toLocaleString(undefined, { maximumFractionDigits: 2 }) : "–";
      }
    });
  }

  // Measures that need an explanation.
  const details = $("#details");
  if (details) details.addEventListener("change", () => people.classList.toggle("detailed", details.checked));

  // Confusion matrices on demand.
  const dialog = $("#confusion-box"), store = $("#confusions");
  if (dialog && store) {
    const { classes, annotators } = JSON.parse(store.textContent);
    const cell = (tag, text, extra = {}) => Object.assign(document.createElement(tag), { textContent: text, ...extra });
    const draw = (name) => {
      const { share, votes } = annotators[name], table = document.createElement("table");
      table.className = "heat";
      table.createCaption().append(cell("span", "Rows: the true class, by the other votes. Columns: what was answered. Percent of a row; the last column is votes."));
      const head = table.createTHead().insertRow();
      head.append(cell("th", "true\u00a0class\u00a0↓ answered\u00a0→", { scope: "col" }), ...classes.map((c) => cell("th", c, { scope: "col", title: c })), cell("th", "votes", { scope: "col" }));
      const body = table.createTBody();
      share.forEach((row, k) => {
        const line = body.insertRow();
        line.append(cell("th", classes[k], { scope: "row", title: classes[k] }));
        row.forEach((p, l) => {
          const td = cell("td", p === null ? "–" : p === 0 ? "·" : p);
          td.style.setProperty("--p", (p || 0) / 100);
          if (k === l) td.className = "right";
          line.append(td);
        });
        line.append(cell("td", Math.round(votes[k])));
      });
      return table;
    };
    for (const opener of $$("button[data-confusion]")) {
      opener.hidden = false;
      opener.addEventListener("click", () => {
        $("#confusion-name").textContent = opener.dataset.title;
        $("#confusion-table").replaceChildren(draw(opener.dataset.confusion));
        dialog.showModal();
      });
    }
    $("#confusion-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  // Tables to save: they stand in the page, compressed.
  for (const saver of $$("button[data-file]")) {
    saver.disabled = false;
    saver.addEventListener("click", async () => {
      const source = document.getElementById(saver.dataset.file), packed = Uint8Array.from(atob(source.textContent.trim()), (c) => c.charCodeAt(0));
      let name = saver.dataset.name, blob = new Blob([packed], { type: "application/gzip" });
      if ("DecompressionStream" in window) blob = await new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).blob();
      else name += ".gz";
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }
})();
