// How it was made fair: the rules, the learning-rate search, every trial.
import { draw, make } from "../../../page/components/elements.js";
import { DASH, isNumber, joinNames, keepUnitsTogether } from "../../../page/components/numbers.js";
import { addMargins, drawFrame, makeScale } from "../../../page/components/scales.js";
import { drawFamilyLine, makeFamilyChart, makeFamilyLegend } from "./charts.js";
import { drawFamilyMark, makeFoldable, makeHeading, makeNote, makeNumber, makePart, makeRowHead, makeTable } from "./parts.js";

const isChosen = (family, { rate }) => isNumber(family.learning_rate) && Math.abs(rate / family.learning_rate - 1) < 1e-9;

function makeRateCell(family, trial, index) {
  const key = `lr-${index + 1}`;
  if (!trial) return make("td", {}, DASH);
  const chosen = trial.status === "done" && isChosen(family, trial);
  const about = { "data-family": family.name, "data-key": key };
  const field = make("td", about, make("span", { class: "rate" }, trial.rate_text),
    trial.status === "failed" ? make("span", { class: "wrong", title: trial.reason }, "failed") : makeNumber(about, trial.validation, trial.validation_text, "b"),
    chosen && make("small", {}, "✓ chosen"));
  if (chosen) field.classList.add("chosen");
  return field;
}

// The validation metric against the learning rate: a line per family, a ring around the rate that was chosen.
function makeRateChart(report, some) {
  const { metric } = report;
  const getTrials = (family) => family.lr_trials.filter((trial) => isNumber(trial.rate) && isNumber(trial.validation)).sort((a, b) => a.rate - b.rate);
  const searched = some.filter((family) => getTrials(family).length > 1);
  if (searched.length === 0) return null;
  const drawing = makeFamilyChart("rates", `Learning-rate search: validation ${metric.name} of ${joinNames(searched.map((family) => family.name))} against the learning rate`, 300, (svg, width, height) => {
    const lines = searched.filter((family) => !report.choices.hidden.has(family.name)), trials = lines.flatMap(getTrials);
    const area = { left: 58, right: width - 14, top: 34, bottom: height - 46 };
    const values = trials.map((trial) => trial.validation);
    const x = makeScale(addMargins(trials.map((trial) => trial.rate), true, 0.04), area.left, area.right, true);
    const y = metric.makeScale(values, area.bottom, area.top, metric.needsLog(values, 3));
    svg.append(drawFrame(area, x, y, { x: "learning rate", y: "validation " + metric.label }, { y: metric.formatTicks }));
    for (const family of lines) {
      const own = getTrials(family), line = { x: own.map((trial) => trial.rate), y: own.map((trial) => trial.validation) };
      svg.append(drawFamilyLine(report, family.name, line, x, y), ...own.map((trial) => drawFamilyMark(report, family.name, x(trial.rate), y(trial.validation), 4)),
        ...own.filter((trial) => isChosen(family, trial)).map((trial) => draw("circle", { class: "chosen", cx: x(trial.rate), cy: y(trial.validation), r: 8 })));
    }
  });
  return make("figure", {}, make("figcaption", {}, "Validation against learning rate", make("small", {}, "A ring marks the rate that was chosen.")),
    makeFamilyLegend(report, searched.map((family) => family.name)), drawing.box);
}

function makeLearningRates(report) {
  const { metric, rules } = report, some = report.families.filter((family) => (family.lr_trials ?? []).length > 0);
  if (some.length === 0) return makeNote("There was no learning-rate search: each family has its default rate, or the rate that was set.");
  const numRates = Math.max(...some.map((family) => family.lr_trials.length));
  const head = make("tr", {}, makeHeading("Family"), ...Array.from({ length: numRates }, (_, at) => makeHeading(`Rate ${at + 1}`, { class: "number" })));
  const rows = some.map((family) => make("tr", {}, makeRowHead(report, family.name),
    ...Array.from({ length: numRates }, (_, at) => makeRateCell(family, family.lr_trials[at], at))));
  return make("div", {}, make("h3", {}, "Learning-rate search"), makeRateChart(report, some),
    makeNote(`Short training runs${rules.lr_trial_budget ? " of " + rules.lr_trial_budget : ""} with different learning rates; each field is the rate and its validation ${metric.name}.`),
    makeTable("learning-rate search", head, rows, { class: "rates" }));
}

function makeFailures(report) {
  const failed = (report.trials ?? []).filter((trial) => trial.status === "failed");
  if (failed.length === 0) return null;
  const head = make("tr", {}, makeHeading("Trial"), makeHeading("Why it failed", { class: "words" }));
  const rows = failed.map((trial) => make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words", "data-failed": trial.name }, trial.reason || "No reason was given.")));
  return make("div", {}, make("h3", {}, "What failed"), makeTable("failed trials", head, rows));
}

function makeTrialTable(report) {
  const trials = report.trials ?? [];
  if (trials.length === 0) return null;
  const names = ["Trial", "Status", "Seed", "Rate", "Updates", report.unit, "Time", "Validation"];
  const head = make("tr", {}, ...names.map((name, at) => makeHeading(name, { class: at > 1 ? "number" : "words" })));
  const rows = trials.map((trial) => {
    const field = (key) => makeNumber({ "data-trial": trial.name, "data-key": key }, trial[key], trial.text[key], "td");
    return make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words" }, trial.status), make("td", {}, String(trial.seed)),
      ...["rate", "updates", "tokens", "seconds", "validation"].map(field));
  });
  return makeFoldable(`Every trial (${trials.length})`, makeTable("every trial", head, rows));
}

export function makeFairness(report) {
  const sentences = report.rules.sentences ?? [];
  const about = [report.split_rule, ...(report.about ?? [])].filter(Boolean);
  return makePart("fairness", "How it was made fair", null,
    sentences.length > 0 && make("ul", { class: "sentences" }, ...sentences.map((one) => make("li", {}, keepUnitsTogether(one)))),
    about.length > 0 && make("div", {}, make("h3", {}, "The data"), make("ul", { class: "sentences" }, ...about.map((one) => make("li", {}, keepUnitsTogether(one))))),
    makeLearningRates(report), makeFailures(report), makeTrialTable(report));
}
