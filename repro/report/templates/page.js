// What every page can do: light or dark, sortable tables, contents that follow the reader.
"use strict";
const page = (() => {
  const root = document.documentElement;
  const bar = document.querySelector(".bar");

  // Where a browser keeps nothing for files, settings last as long as the page.
  const kept = {
    get(name) { try { return localStorage.getItem("report-" + name); } catch { return null; } },
    set(name, value) { try { localStorage.setItem("report-" + name, value); } catch { /* not kept */ } },
  };

  // The edition that is shown: a report holds one per language, a page of the site only one.
  const edition = () => [...document.querySelectorAll(".edition")].find((each) => each.getClientRects().length);

  // The place is the block under the bar, and how many pixels of it have gone by; above a block they are negative.
  function place() {
    const edge = bar.getBoundingClientRect().bottom;
    if (window.scrollY <= 0) return null;
    for (const block of edition().querySelectorAll("[data-at]")) {
      const box = block.getBoundingClientRect();
      if (box.bottom > edge + 1) return { at: block.dataset.at, gone: edge - box.top, height: box.height };
    }
    return null;
  }

  function goTo(found) {
    if (!found) return window.scrollTo(0, 0);
    const block = edition().querySelector(`[data-at="${CSS.escape(found.at)}"]`);
    const box = block.getBoundingClientRect();
    const edge = bar.getBoundingClientRect().bottom;
    const gone = found.gone < 0 ? found.gone : (found.gone / found.height) * box.height;
    window.scrollBy(0, box.top + gone - edge);
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = document.querySelector(".theme");
  const themeNow = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const setTheme = (name) => {
    if (name === "dark" || name === "light") root.dataset.theme = name;
    theme.setAttribute("aria-pressed", String(themeNow() === "dark"));
  };
  setTheme(kept.get("theme"));
  dark.addEventListener("change", () => setTheme(null));
  theme.hidden = false;
  theme.addEventListener("click", () => {
    setTheme(themeNow() === "dark" ? "light" : "dark");
    kept.set("theme", root.dataset.theme);
  });

  // A column sorts upwards, then downwards, then as the report has it; cells without a value stay last.
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  function value(row, column) {
    const cell = row.cells[column];
    const text = (cell.querySelector(":scope > span") || cell).textContent.trim();
    const plain = cell.classList.contains("number") && /^-?\d+(\.\d+)?$/.test(text);
    const key = cell.dataset.sort ?? (plain ? text : undefined);
    if (key === undefined) return text === "" || text === "–" ? null : text;
    const number = Number(key);
    return Number.isFinite(number) ? number : null;
  }

  function compare(one, other, collator) {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return collator.compare(String(one), String(other));
  }

  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const collator = new Intl.Collator(table.closest("[lang]").lang, { numeric: true });
    const rows = [...body.rows].sort((one, other) => one.dataset.row - other.dataset.row);
    if (direction !== "none") {
      const sign = direction === "ascending" ? 1 : -1;
      rows.sort((one, other) => {
        const [a, b] = [value(one, column), value(other, column)];
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * compare(a, b, collator);
      });
    }
    body.append(...rows);
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      cell.setAttribute("aria-sort", index === column ? direction : "none");
    });
  }

  for (const table of document.querySelectorAll("table")) {
    [...table.tBodies[0].rows].forEach((row, index) => { row.dataset.row = index; });
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = cell.querySelector("button");
      if (!button) return;
      cell.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const direction = NEXT[cell.getAttribute("aria-sort")];
        const same = `table[data-table="${CSS.escape(table.dataset.table)}"]`;
        for (const each of document.querySelectorAll(same)) sort(each, column, direction);
      });
    });
  }

  // Contents: always open beside the text, folded above it on narrow screens; the section being read is marked.
  const beside = window.matchMedia("(min-width: 72rem)");
  const fold = () => { for (const each of document.querySelectorAll(".contents")) each.open = beside.matches; };
  fold();
  beside.addEventListener("change", fold);
  for (const link of document.querySelectorAll(".contents a")) {
    link.addEventListener("click", () => { if (!beside.matches) link.closest("details").open = false; });
  }

  function mark() {
    const edge = bar.getBoundingClientRect().bottom + 40;
    const sections = [...edition().querySelectorAll("section")];
    const end = window.innerHeight + window.scrollY >= root.scrollHeight - 2;
    const current = end && window.scrollY > 0 ? sections.at(-1)
      : sections.filter((section) => section.getBoundingClientRect().top <= edge).at(-1);
    for (const link of edition().querySelectorAll(".contents a")) {
      if (current && link.hash === "#" + current.id) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
    bar.classList.toggle("scrolled", window.scrollY > 80);
  }

  let waiting = false;
  window.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; mark(); });
  }, { passive: true });
  mark();
  return { root, bar, kept, edition, place, goTo, mark };
})();
