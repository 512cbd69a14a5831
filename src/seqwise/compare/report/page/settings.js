// Everything needed to repeat it: settings, the command, the machine.
import { make, makeCopyButton } from "../../../page/components/elements.js";
import { DASH } from "../../../page/components/numbers.js";
import { makeFamilyLabel, makeFoldable, makeHeading, makeNote, makePart, makeTable } from "./parts.js";

function flatten(value, prefix = "", into = new Map()) {
  if (value !== null && typeof value === "object" && !Array.isArray(value))
    for (const [key, inner] of Object.entries(value)) flatten(inner, prefix ? prefix + "." + key : key, into);
  else into.set(prefix, value);
  return into;
}

const formatSetting = (value) => value === null || value === undefined ? DASH : typeof value === "string" ? value
  : typeof value === "number" ? (Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : String(Number(value.toPrecision(6)))) : JSON.stringify(value);

function makeDifferingSettings(report, withSettings) {
  const keys = [...new Set(withSettings.flatMap(([, settings]) => [...settings.keys()]))];
  const differingKeys = keys.filter((key) => new Set(withSettings.map(([, settings]) => JSON.stringify(settings.get(key) ?? null))).size > 1);
  if (withSettings.length < 2) return null;
  if (differingKeys.length === 0) return makeNote("All families have the same settings.");
  const head = make("tr", {}, makeHeading("Setting"), ...withSettings.map(([name]) => makeHeading(makeFamilyLabel(report, name))));
  const rows = differingKeys.map((key) => make("tr", {}, make("th", { scope: "row" }, make("code", {}, key)),
    ...withSettings.map(([name, settings]) => make("td", { class: "words", "data-family": name, "data-setting": key }, formatSetting(settings.get(key))))));
  return make("div", {}, make("h3", {}, "Settings that differ"), makeTable("settings that differ between families", head, rows, { class: "settings" }));
}

const makeNameValueTable = (label, entries) => makeTable(label, make("tr", {}, makeHeading("Name"), makeHeading("Value")),
  entries.map(([key, value]) => make("tr", {}, make("th", { scope: "row" }, make("code", {}, key)), make("td", { class: "words" }, formatSetting(value)))), { class: "settings" });

function makeCommand(command) {
  const code = make("code", { id: "command" }, command);
  return make("div", { class: "command" }, make("pre", { tabindex: "0" }, code), makeCopyButton(code));
}

export function makeSettings(report) {
  const withSettings = report.families.filter((family) => family.settings && Object.keys(family.settings).length > 0).map((family) => [family.name, flatten(family.settings)]);
  const machine = [...flatten(report.machine ?? {})].filter(([key]) => key !== "in_words");
  return makePart("settings", "Repeat it", "The same command on the same data repeats this comparison, in a new folder.",
    report.command && makeCommand(report.command),
    makeDifferingSettings(report, withSettings),
    withSettings.length > 0 && make("h3", {}, "Every setting"),
    ...withSettings.map(([name, own]) => {
      const run = report.byName.get(name).run;
      return makeFoldable(makeFamilyLabel(report, name), run && makeNote("Run folder: ", make("code", {}, run)), makeNameValueTable("settings of " + name, [...own]));
    }),
    make("h3", {}, "Machine and versions"), makeNote(report.machine?.in_words ?? "", report.seqwise ? ` · Seqwise ${report.seqwise}` : ""),
    machine.length > 0 && makeFoldable("All details", makeNameValueTable("machine and versions", machine)));
}
