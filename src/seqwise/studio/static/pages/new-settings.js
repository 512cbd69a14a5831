// The settings that are rarely needed: sections that open, and a search over all of them.
import { make, makeButton } from "../../../page/components/elements.js";
import { makeField, makeTitle } from "./new-fields.js";

// `form` is what the server describes, `names` the fields that are shown elsewhere. Returns { element, fields, update(unused) }.
export function makeSettings(form, names, onChange) {
  const bySection = new Map();
  for (const field of form.fields) {
    if (names.has(field.name)) continue;
    if (!bySection.has(field.section)) bySection.set(field.section, []);
    bySection.get(field.section).push(makeField(field, onChange));
  }
  const search = make("input", { type: "search", placeholder: "dropout, tokenizer, batch size …", "aria-label": "Search the settings", name: "search" });
  const none = make("p", { class: "note new-none", hidden: true }, "No setting matches.");
  const sections = [...bySection].map(([name, fields]) => makeSection(name, fields, form.sections[name]));
  let unused = {};

  function show() {
    const query = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let numShown = 0;
    for (const section of sections) numShown += section.show((field) => !(field.name in unused) && field.matches(query), query.length > 0);
    none.hidden = numShown > 0;
  }

  search.addEventListener("input", show);
  const clear = makeButton("Clear all", () => { for (const section of sections) for (const field of section.fields) field.set(undefined); onChange(); }, { class: "small" });
  const element = make("section", { class: "new-settings", "aria-label": "All settings" },
    make("div", { class: "new-heading" }, make("h2", {}, "All settings"), search, clear),
    make("p", { class: "note" }, "Only settings that have an effect for this task and model are listed. What is left empty is chosen for the data and the machine, and recorded with the run."),
    make("div", { class: "new-sections" }, ...sections.map((section) => section.element), none));
  return {
    element, fields: sections.flatMap((section) => section.fields),
    update(values) {
      unused = values;
      clear.hidden = !sections.some((section) => section.fields.some((field) => field.get() !== undefined && !(field.name in unused)));
      show();
    },
  };
}

function makeSection(name, fields, description) {
  const count = make("span", { class: "new-count" });
  const details = make("details", { class: "new-section", "data-section": name },
    make("summary", {}, make("b", {}, name ? makeTitle(name) : "General"), make("span", { class: "hint" }, shorten(description ?? texts[name] ?? "")), count),
    make("div", { class: "new-grid" }, ...fields.map((field) => field.element)));
  let wasSearch = false;
  return {
    element: details, fields,
    // Shows the fields for which `isShown` is true; a search opens the section, and the end of the search closes it.
    show(isShown, isSearch) {
      const shown = fields.filter((field) => { field.element.hidden = !isShown(field); return !field.element.hidden; });
      const numSet = shown.filter((field) => field.get() !== undefined).length;
      details.hidden = shown.length === 0;
      count.textContent = numSet ? `${numSet} set` : "";
      if (isSearch || wasSearch) details.open = isSearch;
      wasSearch = isSearch;
      return shown.length;
    },
  };
}

const texts = { "": "Files to start from, and processes.", comparison: "What is equal for all families, and how they are searched and run." };
const shorten = (text) => text.split("\n")[0].split(". ")[0].replace(/\.$/, "");
