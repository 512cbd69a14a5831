// Use a model: an input for its task, and its answer, which changes as the input is edited.
//
// Each task has a module `use-TASK.js` with `create(about, context)`, which returns { input, output, start() }: two
// elements and a function that makes the first prediction. `context` is what `show` builds below.
import { make } from "../../../page/components/elements.js";
import { createPins } from "../../../page/components/pins.js";
import { chooseRun, makeEmpty, makeRunSelect } from "../choices.js";
import { loadStyle } from "../styles.js";
import { makeField } from "./use-parts.js";
import { createSession } from "./use-session.js";

const TASKS = ["language", "masked", "classify", "tag", "translate", "caption", "forecast"];
const MAX_KEPT_TEXT = 2_000;  // characters of a text in the address

export async function show(element, parameters, studio) {
  await loadStyle("use");
  const wanted = parameters.get("id"), rows = listUsable(studio, wanted);
  element.append(make("h1", {}, "Use"));
  if (!rows.length) {
    element.append(makeEmpty(studio, "There are no runs to use yet.", "seqwise train builtin:docs"));
    return { update: () => { if (listUsable(studio).length) studio.reload(); } };
  }
  if (wanted && !studio.rows.get(wanted)) studio.showError({ problem: `there is no run ${wanted}.`, fix: "It may have been moved or deleted." });
  const id = rows.some((row) => row.id === wanted) ? wanted : chooseRun(rows).id;
  const status = make("p", { class: "use-status", role: "status" }), body = make("div", { class: "use-body" });
  let chooser = makeChooser(rows, id, studio);
  element.append(chooser, status, body);
  const problem = make("div", { class: "use-problem" });
  const session = createSession(studio, (isBusy) => { body.classList.toggle("is-busy", isBusy); body.setAttribute("aria-busy", String(isBusy)); });
  const context = {
    studio, session, run: id, parameters, pins: createPins(),
    // Saves the state of the page in its address.
    keep: (values) => studio.keep("use", { id, ...Object.fromEntries(Object.entries(values).filter(([, value]) => String(value ?? "").length <= MAX_KEPT_TEXT)) }),
    showProblem: (error) => problem.replaceChildren(...error ? [studio.makeError(error)] : []),
  };
  status.textContent = "Loading the model …";
  session.call("describe_model", { run: id }).then(async (about) => {
    if (!about) return;
    if (!TASKS.includes(about.task)) throw { problem: `the page has no input for the task ${about.task}.`, fix: `From Python: seqwise.load("${id}").predict(…)` };
    const { create } = await import(`./use-${about.task}.js`);
    status.textContent = "";
    const view = create(about, context);
    body.replaceChildren(make("div", { class: "use-input card" }, view.input), make("div", { class: "use-output" }, problem, view.output));
    await view.start();
  }).catch((error) => { status.textContent = ""; body.prepend(problem); context.showProblem(error); });
  return {
    close: session.stop,
    // A run has appeared or was removed.
    update() {
      const next = makeChooser(listUsable(studio, id), id, studio);
      if (next.textContent === chooser.textContent || chooser.contains(document.activeElement)) return;
      chooser.replaceWith(next);
      chooser = next;
    },
  };
}

// The trials of comparisons are reached through their comparison, which stands for its best; one that the address names is listed too.
function listUsable(studio, wanted) {
  const rows = studio.rows.listTop().filter((row) => row.kind === "comparison" || row.task && !(row.state === "failed" && !row.value));
  const own = wanted && studio.rows.get(wanted);
  return own && !rows.includes(own) ? [own, ...rows] : rows;
}

function makeChooser(rows, id, studio) {
  const select = makeRunSelect(rows, id, (next) => studio.go("use", { id: next }), { class: "use-run" });
  const isComparison = studio.rows.get(id)?.kind === "comparison";
  return make("div", { class: "row use-chooser" }, makeField("Run", select),
    make("a", { class: "button", href: studio.makeAddress(isComparison ? "compare" : "run", { id }) }, isComparison ? "Open the comparison" : "Open the run"),
    make("a", { class: "button", href: studio.makeAddress("inside", { id }) }, "Look inside"));
}
