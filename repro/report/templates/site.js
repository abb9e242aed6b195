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

  const text = (cell) => (cell.querySelector(":scope > span") ?? cell).textContent.trim();

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
