// What a check of the data says: its errors with file and line, or what training would read.
import { make } from "../../../page/components/elements.js";
import { formatWhole } from "../../../page/components/numbers.js";

const MAX_ERRORS = 20;

function makeSplits(splits) {
  const names = [...new Set(Object.values(splits).flatMap((counts) => Object.keys(counts)))];
  return make("div", { class: "scroller" }, make("table", { class: "new-splits" },
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "words" }, "Split"), ...names.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...Object.entries(splits).map(([split, counts]) => make("tr", {}, make("th", { scope: "row", class: "words" }, split),
      ...names.map((name) => make("td", {}, counts[name] === undefined ? "" : formatWhole(counts[name]))))))));
}

function makeList(title, texts, kind) {
  return texts?.length ? make("div", { class: "new-list " + kind }, make("p", { class: "label" }, title), make("ul", {}, ...texts.map((text) => make("li", {}, text)))) : null;
}

export function makeReport(report, studio) {
  if (report.errors?.length) {
    const { errors } = report, count = errors.length === 1 ? "1 problem" : `${formatWhole(errors.length)} problems`;
    return make("div", { class: "new-report is-bad" }, make("h3", {}, `${count} in the data`),
      ...errors.slice(0, MAX_ERRORS).map((error) => studio.makeError(error)),
      errors.length > MAX_ERRORS && make("p", { class: "note" }, `… and ${formatWhole(errors.length - MAX_ERRORS)} more.`));
  }
  const vocabulary = Object.values(report.vocabulary ?? {}).map((size) => formatWhole(size)).join(" + ");
  const facts = [["Task", report.task], ["Tokens", report.tokenizer], ["Vocabulary", vocabulary]].filter(([, value]) => value);
  return make("div", { class: "new-report is-good" }, make("h3", {}, "The data can be trained on"),
    make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    report.splits && makeSplits(report.splits),
    makeList("Warnings", report.warnings, "is-warning"), makeList("Notes", report.notes, ""));
}
