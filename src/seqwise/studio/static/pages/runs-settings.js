// The settings in which the selected runs differ, side by side.
import { make, makeNamedChip } from "../../../page/components/elements.js";

const MAX_NAME = 28;  // characters of a name in the head of the table

export function buildSettings(selection) {
  if (!selection) return null;
  const { groups, differences } = selection;
  const heading = make("h2", {}, "Settings that differ");
  if (differences.length === 0) {
    const text = groups.length + groups[0].runs.length === 2 ? "Select another run to see in which settings they differ." : "All settings are equal.";
    return make("section", { class: "runs-settings", "aria-label": "Settings that differ" }, heading, make("p", { class: "hint" }, text));
  }
  const shorten = (name) => name.length > MAX_NAME ? name.slice(0, MAX_NAME - 1) + "…" : name;
  const head = make("tr", {}, make("th", { scope: "col", class: "words" }, "setting"),
    ...groups.map(({ name, style }) => make("th", { scope: "col", class: "words", title: name }, makeNamedChip(style, shorten(name)))));
  const rows = differences.map(({ name, values }) => make("tr", {}, make("th", { scope: "row", class: "words" }, make("code", {}, name)),
    ...values.map((value) => make("td", { class: "words", title: value }, make("bdi", {}, value)))));
  return make("section", { class: "runs-settings", "aria-label": "Settings that differ" }, heading,
    make("div", { class: "scroller box", role: "region", "aria-label": "Table of the settings that differ", tabindex: "0" },
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}
