// Verdicts and guesses in words.
import { make } from "../../page/components/elements.js";
import { keepUnitsTogether } from "../../page/components/numbers.js";

export const GUESSES = [["true", "True"], ["false", "False"], ["depends", "Depends"]];
const ANSWERS = { holds: "true", refuted: "false", "holds if": "depends" };
const SIGNS = { holds: "✓", refuted: "✗", "holds if": "◐" };
const NAMES = { holds: "Holds", refuted: "Refuted", "holds if": "Holds if …" };
const CLASSES = { holds: "is-true", refuted: "is-false", "holds if": "is-conditional" };

// The guess that is right.
export const getAnswer = (record) => ANSWERS[record.verdict];
export const getName = (verdict) => NAMES[verdict];

const endSentence = (text) => /[.!?]$/.test(text) ? text : text + ".";

// What is true, as a sentence; a condition completes the name of the verdict.
function explain(record) {
  if (record.verdict === "holds if") return endSentence(record.condition);
  return record.verdict === "refuted" ? endSentence(record.instead ?? "") : "The statement holds as it stands.";
}

// The verdict: its name, a sentence, and the evidence.
export function makeVerdict(record) {
  return make("div", { class: "verdict " + CLASSES[record.verdict] },
    make("p", { class: "verdict-name" }, make("b", { "aria-hidden": "true" }, SIGNS[record.verdict]), NAMES[record.verdict]),
    make("p", { class: "verdict-text" }, keepUnitsTogether(explain(record))),
    make("p", { class: "verdict-evidence" }, keepUnitsTogether(record.evidence)));
}
