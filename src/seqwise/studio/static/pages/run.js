// One run: its state, curves while it trains, samples, settings and where they come from, health, model and checkpoints.
import { make } from "../../../page/components/elements.js";
import { formatCount } from "../../../page/components/numbers.js";
import { makeEmpty } from "../choices.js";
import { loadStyle } from "../styles.js";
import { createCurves } from "./run-curves.js";
import { createHeader } from "./run-header.js";
import { createHealth } from "./run-health.js";
import { createModel } from "./run-model.js";
import { createSamples } from "./run-samples.js";
import { createSettings } from "./run-settings.js";

const REFRESH_SECONDS = 2;  // between two requests while a run trains
// Each part creates { element, update(run, row) }; it is created when it is first opened.
const PARTS = {
  curves: ["Curves", createCurves], samples: ["Samples", createSamples], settings: ["Settings", createSettings],
  health: ["Health", createHealth], model: ["Model", createModel],
};

function showChoice(element, studio) {
  const rows = studio.rows.listTop().filter(({ kind }) => kind === "run");
  element.append(make("h1", {}, "Run"), rows.length === 0
    ? makeEmpty(studio, "There are no runs yet.", "seqwise train builtin:docs")
    : make("p", {}, "Choose a run:"),
    make("ul", { class: "run-choices" }, ...rows.map(({ id, name, task, model }) => make("li", {},
      make("a", { href: studio.makeAddress("run", { id }) }, make("bdi", {}, name)), ` ${task ?? ""}, ${model ?? ""}`))));
}

// The page stays when the address names another run.
export async function show(element, parameters, studio) {
  await loadStyle("run");
  let shown = await showRun(element, parameters, studio), number = 0;
  return {
    update: (changed) => shown.update?.(changed),
    async change(next) {
      if (shown.id && next.get("id") === shown.id) return shown.open(next);
      const own = ++number;
      shown.close?.();
      shown = {};
      element.replaceChildren();
      try {
        const other = await showRun(element, next, studio);
        if (own === number) shown = other;
      } catch (error) {
        element.replaceChildren(make("h1", {}, "Run"), studio.makeError(error.problem ? error : { problem: String(error.message ?? error) }));
      }
    },
    close: () => shown.close?.(),
  };
}

async function showRun(element, parameters, studio) {
  const id = parameters.get("id");
  if (!id) {
    showChoice(element, studio);
    return {};
  }
  if (studio.rows.get(id)?.kind === "comparison") {
    location.replace(studio.makeAddress("compare", { id }));
    return {};
  }
  let run = await studio.get("/api/run", { id });
  const state = { id, part: "curves", x: "step" };
  const keep = () => studio.keep("run", { id, part: state.part === "curves" ? null : state.part, x: state.x === "step" ? null : state.x });
  const context = { studio, id, state, keep };
  const header = createHeader(run, context), parts = {}, content = make("div", { class: "run-part" });
  const links = Object.fromEntries(Object.entries(PARTS).map(([part, [title]]) =>
    [part, make("a", { href: studio.makeAddress("run", { id, part: part === "curves" ? null : part }), "data-part": part }, title)]));
  const nav = make("nav", { class: "run-parts", "aria-label": "Parts of the run" }, ...Object.values(links));

  const getRow = () => studio.rows.get(id) ?? run;
  const open = (next) => {
    state.part = next.get("part") in PARTS ? next.get("part") : "curves";
    state.x = ["tokens", "seconds"].includes(next.get("x")) ? next.get("x") : state.x;
    for (const [part, link] of Object.entries(links)) {
      if (part === state.part) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    parts[state.part] ??= PARTS[state.part][1](run, context);
    content.replaceChildren(parts[state.part].element);
    parts[state.part].show?.();
  };
  const countSamples = () => { links.samples.replaceChildren("Samples", ...run.samples.length ? [make("span", { class: "run-count" }, formatCount(run.samples.length))] : []); };

  element.append(header.element, nav, content);
  open(parameters);
  countSamples();

  let isWaiting = false, isClosed = false, isDirty = false;
  const refresh = async () => {
    if (isWaiting) { isDirty = true; return; }
    isWaiting = true;
    try {
      run = await studio.get("/api/run", { id });
      if (isClosed) return;
      header.update(run, getRow());
      countSamples();
      await Promise.all(Object.values(parts).map((part) => part.update?.(run, getRow())));
    } catch (error) {
      if (!isClosed && studio.rows.get(id)) header.showError(error);
    } finally {
      setTimeout(() => { isWaiting = false; if (isDirty && !isClosed) { isDirty = false; refresh(); } }, 1000 * REFRESH_SECONDS);
    }
  };
  return {
    id, open,
    update(changed) {
      const row = changed.find((each) => each.id === id);
      if (!row) return;
      if (row.is_gone) return header.showGone();
      header.update(run, row);
      refresh();
    },
    close() { isClosed = true; },
  };
}
