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
    if (cell.dataset.sort === undefined) return (cell.querySelector(".value") || cell).textContent;
    const number = Number(cell.dataset.sort);
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
// What the site adds to a page: filters and CSV for its tables, copying of commands, and a language switch that keeps the
// place. Everything can be read without it.
(() => {
  const { root, place, edition } = page;
  const words = document.body.dataset;
  const SEARCHED = 20;

  for (const link of document.querySelectorAll(".languages a")) {
    link.addEventListener("click", () => {
      const at = place()?.at.split(".")[0];
      link.hash = at && at !== "top" ? at : "";
    });
  }

  // A link to something folded opens it.
  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details.folded");
    if (folded) folded.open = true;
    target?.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  window.addEventListener("beforeprint", () => {
    for (const each of edition().querySelectorAll("details")) each.open = true;
  });

  const text = (cell) => (cell.querySelector(".value") ?? cell).textContent.trim();

  function filters(table) {
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    const filtered = heads.flatMap((head, column) => ("filtered" in head.dataset ? [column] : []));
    if (!filtered.length && rows.length < SEARCHED) return null;
    const form = document.createElement("form");
    form.className = "filters";
    const search = form.appendChild(document.createElement("input"));
    search.type = "search";
    search.placeholder = words.search;
    search.setAttribute("aria-label", words.search);
    const menus = filtered.map((column) => {
      const values = [...new Set(rows.map((row) => text(row.cells[column])))].sort();
      const menu = form.appendChild(document.createElement("select"));
      const name = heads[column].textContent.trim();
      menu.setAttribute("aria-label", name);
      menu.append(new Option(`${name}: ${words.all}`, ""), ...values.map((value) => new Option(value, value)));
      return { column, menu };
    });
    const count = form.appendChild(document.createElement("output"));
    const apply = () => {
      const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const content = row.textContent.toLowerCase();
        row.hidden = !(wanted.every((word) => content.includes(word))
          && menus.every(({ column, menu }) => !menu.value || text(row.cells[column]) === menu.value));
        shown += !row.hidden;
      }
      count.textContent = words.shown.replace("{n}", shown).replace("{all}", rows.length);
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
    return form;
  }

  function save(table) {
    // an apostrophe keeps a spreadsheet from taking a text for a formula
    const inert = (value) => (/^[=+\-@\t\r]/.test(value) && !/^[+-]?[\d.,]+ ?%?$/.test(value) ? `'${value}` : value);
    const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const lines = [...table.rows].filter((row) => !row.hidden)
      .map((row) => [...row.cells].map((cell) => quoted(inert(text(cell)))).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = `${location.pathname.split("/").pop().replace(".html", "")}-${table.dataset.table}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const button = (label, action) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "tool";
    made.textContent = label;
    made.addEventListener("click", () => action(made));
    return made;
  };

  for (const table of document.querySelectorAll("table")) {
    const scroll = table.closest(".scroll");
    const form = filters(table);
    if (form) scroll.before(form);
    scroll.after(button(words.csv, () => save(table)));
  }

  for (const scroll of document.querySelectorAll("figure .scroll")) {
    const made = button(words.enlarge, () => made.setAttribute("aria-pressed", String(scroll.classList.toggle("large"))));
    made.classList.add("enlarge");
    scroll.after(made);
  }

  for (const block of document.querySelectorAll("pre")) {
    if (!navigator.clipboard) break;
    block.after(button(words.copy, async (made) => {
      await navigator.clipboard.writeText(block.textContent);
      made.textContent = words.copied;
      setTimeout(() => { made.textContent = words.copy; }, 2000);
    }));
  }
  root.classList.add("scripted");
})();
