// Makes a report bilingual: one language is shown at a time. Without it both stand one after the other.
(() => {
  const { root, kept, place, goTo, mark } = page;
  const editions = [...document.querySelectorAll(".edition")];
  const languages = editions.map((edition) => edition.dataset.in);
  const edition = () => editions.find((each) => each.dataset.in === root.dataset.language);

  const inHash = () => {
    const [language, ...rest] = decodeURIComponent(location.hash.slice(1)).split("-");
    return languages.includes(language) ? { language, place: rest.join("-") } : null;
  };

  function show(language) {
    root.dataset.language = language;
    root.lang = edition().lang;
    document.title = edition().dataset.title;
    for (const link of document.querySelectorAll(".languages a")) {
      if (link.dataset.language === language) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  function change(language) {
    const found = place();
    show(language);
    goTo(found);
    kept.set("language", language);
    const hash = "#" + language + "-" + (found ? found.at.split(".")[0] : "top");
    try { history.replaceState(null, "", hash); } catch { /* the address stays as it is */ }
    mark();
  }

  for (const link of document.querySelectorAll(".languages a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (link.dataset.language !== root.dataset.language) change(link.dataset.language);
    });
  }

  window.addEventListener("hashchange", () => {
    const wanted = inHash();
    if (wanted && wanted.language !== root.dataset.language) {
      show(wanted.language);
      document.getElementById(location.hash.slice(1))?.scrollIntoView();
    }
  });

  const preferred = (navigator.language || "").toLowerCase().startsWith("zh") ? "zh" : "en";
  const stored = kept.get("language");
  const first = [inHash()?.language, stored, preferred].find((language) => languages.includes(language)) || languages[0];
  show(first);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  mark();
})();
