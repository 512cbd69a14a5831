// All settings of a run: their values, where they come from, and why those that were not set were chosen.
import { make, makeChoice, makeId } from "../../../page/components/elements.js";
import { formatPlural } from "../../../page/components/numbers.js";

const ORIGINS = { set: "set", chosen: "chosen by rule", default: "default", "": "set or chosen" };
const SECTIONS = { "": "Run", text: "Text", data: "Data", network: "Network", training: "Training" };

const nameSection = (section) => SECTIONS[section] ?? section[0].toUpperCase() + section.slice(1);
const formatValue = (value) => value === null ? "not set" : value === true ? "yes" : value === false ? "no" : String(value);

function makeRow({ name, value, help, origin, reason, is_used }) {
  return make("tr", { class: is_used ? null : "is-unused", "data-setting": name },
    make("th", { scope: "row", class: "words" }, make("code", {}, name.split(".").at(-1).replaceAll("_", "-")), help && make("span", { class: "run-help" }, help)),
    make("td", { class: "words run-value" }, make("bdi", {}, formatValue(value))),
    make("td", { class: "words" }, make("span", { class: "run-origin is-" + (origin || "unknown") }, ORIGINS[origin]), reason && make("span", { class: "run-reason" }, reason)));
}

export function createSettings(initial, { studio }) {
  const label = makeId("search"), search = make("input", { type: "search", id: label, placeholder: "Search", autocomplete: "off" });
  const count = make("p", { class: "hint", role: "status" }), sections = make("div", { class: "run-sections" });
  let settings = initial.settings, kind = "used";
  const choice = makeChoice("show", [["used", "used"], ["set", "set"], ["chosen", "chosen by rule"], ["all", "all"]], kind, (next) => { kind = next; draw(); });
  const element = make("div", {}, make("div", { class: "row run-controls" }, make("label", { class: "unseen", for: label }, "Search settings"), search, choice, count), sections);

  const isShown = ({ name, help, reason, origin, is_used, value }) => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), text = [name, name.replaceAll("_", "-"), help, reason, formatValue(value)].join(" ").toLowerCase();
    return words.every((word) => text.includes(word)) && (kind === "all" || is_used && (kind === "used" || origin === kind));
  };
  const draw = () => {
    const rows = settings.filter(isShown), groups = Map.groupBy ? Map.groupBy(rows, getSection) : groupRows(rows);
    count.textContent = rows.length ? formatPlural(rows.length, "setting") : "no setting matches";
    sections.replaceChildren(...[...groups].map(([section, group]) => make("section", {}, make("h2", {}, nameSection(section)),
      make("div", { class: "scroller box" }, make("table", { class: "run-settings" }, make("caption", { class: "unseen" }, `Settings: ${nameSection(section)}`),
        make("thead", {}, make("tr", {}, ...["Setting", "Value", "Where it comes from"].map((name) => make("th", { scope: "col", class: "words" }, name)))),
        make("tbody", {}, ...group.map(makeRow)))))));
  };
  search.addEventListener("input", draw);
  draw();
  return { element, update(run) {
    if (JSON.stringify(run.settings) === JSON.stringify(settings)) return;
    settings = run.settings;
    draw();
  } };
}

const getSection = ({ name }) => name.includes(".") ? name.split(".")[0] : "";

function groupRows(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(getSection(row), [...groups.get(getSection(row)) ?? [], row]);
  return groups;
}
