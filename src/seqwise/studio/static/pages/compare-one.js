// One comparison: its report, or what is known so far.
import { make } from "../../../page/components/elements.js";
import { drawCharts } from "../../../page/components/scales.js";
import { createChoices, createReport } from "../../../compare/report/page/report.js";
import { PARTS } from "../../../compare/report/page/sections.js";
import { makeConditions, makeVerdict } from "../../../compare/report/page/verdict.js";
import { createComparisonActions } from "./compare-actions.js";
import { createTimer, makeState, swap } from "./compare-elements.js";
import { makeLiveHead, makeRanking } from "./compare-live.js";
import { makeTrials } from "./compare-trials.js";

const LIVE_PARTS = ["curves", "fairness", "settings"];  // before a model is evaluated on the test split
const AFTER_TRIALS = ["fairness", "settings"];
const REPORT_INTERVAL = 4000;  // milliseconds between two partial reports

// What a part reads; it is drawn again when that has changed.
const READS = {
  curves: ({ families, trials }) => [families.map(({ name, curves }) => [name, curves]), trials.map(({ status }) => status)],
  settings: ({ families }) => families.map(({ name, settings }) => [name, settings]),
};

// The links below the sentences: to the run of the best family.
function makeBestLinks(report, id, studio) {
  const { name, run } = report.byName.get(report.verdict.best) ?? {};
  if (!run) return null;
  const link = (page, text) => make("a", { class: "button", href: studio.makeAddress(page, { id: `${id}/${run}` }) }, text);
  return make("p", { class: "row" }, link("use", `Use ${name}`), link("inside", `Look inside ${name}`), link("run", `Open the run of ${name}`));
}

export async function showComparison(element, id, studio) {
  const choices = createChoices(), body = make("div", { class: "report" }), actionBox = make("div", { class: "row compare-actions" });
  const stateBox = make("span", { role: "status" }), title = make("h1", {}, id), about = make("span", { class: "compare-soft" });
  const head = make("div"), contents = make("nav"), main = make("div", { class: "compare-parts" });
  const sections = new Map(), keys = new Map();  // by name: elements, and what they were drawn from
  let comparison = null, data = null, report = null, reportKey = "", reportTime = 0;
  const makeActions = createComparisonActions(id, studio, () => timer.hurry());

  // Draws a part if what it shows has changed.
  function place(name, key, makeIt) {
    if (keys.get(name) === key) return;
    keys.set(name, key);
    const { section, name: text } = makeIt();
    if (sections.has(name)) swap(sections.get(name).section, section);
    sections.set(name, { section, text });
  }

  // Returns whether the report includes what is known now.
  async function loadReport() {
    const key = JSON.stringify([comparison.has_report, comparison.trials.map(({ state, value, is_tested: isTested }) => [state, value, isTested])]);
    if (key === reportKey) return true;
    if (!comparison.has_report && Date.now() - reportTime < REPORT_INTERVAL) return false;
    reportTime = Date.now();
    try {
      const final = comparison.has_report ? await studio.get("/api/comparison/report", { id }) : null;
      data = final ?? await studio.call("gather-report", { run: id });
    } catch (error) {
      if (report && comparison.state === "running") return false;  // an outcome is being written, or many requests wait
      throw error;
    }
    report = createReport(data, choices);
    reportKey = key;
    return true;
  }

  function draw() {
    const { has_report: isFinal } = comparison, hasCurves = report.families.some(({ curves }) => curves.length > 0);
    const parts = isFinal || report.finished.length ? Object.keys(PARTS) : LIVE_PARTS.filter((name) => name !== "curves" || hasCurves);
    const names = [...isFinal ? [] : ["ranking"], ...parts.filter((name) => !AFTER_TRIALS.includes(name)), "trials", ...parts.filter((name) => AFTER_TRIALS.includes(name))];
    for (const [name, { section }] of [...sections])
      if (main.contains(section) && !names.includes(name)) { section.remove(); sections.delete(name); keys.delete(name); }
    for (const name of names) {
      if (name === "ranking") place(name, JSON.stringify(comparison.ranking), () => makeRanking(comparison));
      else if (name === "trials") place(name, JSON.stringify([comparison.state, comparison.trials]), () => makeTrials(comparison, studio));
      else place(name, JSON.stringify((READS[name] ?? ((all) => all))(data.report)), () => PARTS[name](report));
    }
    const wanted = names.map((name) => sections.get(name).section);
    if (wanted.some((section, at) => main.children[at] !== section)) main.replaceChildren(...wanted);
    place("contents", JSON.stringify(names), () => ({ section: make("nav", { "aria-label": "parts of this report" },
      make("div", { class: "compare-contents" }, ...names.map((name) => make("a", { href: studio.makeAddress("compare", { id, part: name }) }, sections.get(name).text)))) }));
  }

  function drawHead() {
    const { has_report: isFinal, state, trials, ...rest } = comparison;
    place("state", state, () => ({ section: makeState(state) }));
    place("actions", JSON.stringify([state, comparison.num_failed, comparison.downloads]), () => ({ section: make("div", { class: "row compare-actions" }, ...makeActions(comparison)) }));
    place("head", JSON.stringify([isFinal, isFinal || rest, reportKey]), () => ({ section: isFinal
      ? make("div", { class: "compare-head" }, makeVerdict(report), makeBestLinks(report, id, studio), makeConditions(report))
      : make("div", { class: "compare-head" }, makeLiveHead(comparison, report.verdict.sentences), makeConditions(report)) }));
  }

  async function refresh() {
    comparison = await studio.get("/api/comparison", { id });
    title.textContent = comparison.title;
    about.textContent = id;
    const isCurrent = await loadReport();
    if (!element.isConnected) return false;
    draw();
    drawHead();
    return comparison.state === "running" || !isCurrent;
  }

  for (const [name, section] of Object.entries({ head, contents, actions: actionBox, state: make("span") })) sections.set(name, { section });
  stateBox.append(sections.get("state").section);
  body.append(head, contents, main);
  element.append(make("p", { class: "compare-path" }, make("a", { href: studio.makeAddress("compare") }, "Comparisons"), " / ", about), title,
    make("div", { class: "row compare-bar-row" }, stateBox, actionBox), body);
  const timer = createTimer(refresh, studio);
  await timer.run();
  return {
    update(rows) {
      if (rows.some((row) => row.id === id && row.is_gone)) {
        timer.close();
        return studio.go("compare");
      }
      if (rows.some((row) => row.id === id || row.parent === id)) timer.hurry();
    },
    showPart(name) {
      const section = sections.get(name)?.section;
      if (!section || !main.contains(section)) return;
      drawCharts(main);  // they change the heights of the parts above
      section.scrollIntoView();
      section.setAttribute("tabindex", "-1");
      section.focus({ preventScroll: true });
    },
    close: timer.close,
  };
}
