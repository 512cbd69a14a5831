// One run: its state, curves while it trains, samples, settings and where they come from, health, model and checkpoints.
import { make } from "../../../page/components/elements.js";
import { clamp, formatCount } from "../../../page/components/numbers.js";
import { makeEmpty } from "../choices.js";
import { loadStyle } from "../styles.js";
import { createCurves } from "./run-curves.js";
import { createHeader } from "./run-header.js";
import { createHealth } from "./run-health.js";
import { createModel } from "./run-model.js";
import { createSamples } from "./run-samples.js";
import { createSettings } from "./run-settings.js";

// Seconds between two requests while a run trains: more for a longer run, whose curves change less from one to the next. The
// minimum is below the time between two events, so that an event of a young run is one request and one drawing.
const MIN_SECONDS = 1.5, MAX_SECONDS = 15, chooseSeconds = (row) => clamp((row.seconds ?? 0) / 50, MIN_SECONDS, MAX_SECONDS);
// Each part creates { element, update(run, row) } when it is first opened, and perhaps getQuery(): what it needs besides the run.
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
        const other = await showRun(element, next, studio, () => own !== number);
        if (own === number) shown = other;
      } catch (error) {
        if (own === number) element.replaceChildren(make("h1", {}, "Run"), studio.makeError(error));
      }
    },
    close: () => shown.close?.(),
  };
}

// `isOutdated` says whether the address has changed again while the run was fetched; the first one of a page never is, since a
// page that is left before it is drawn is replaced.
async function showRun(element, parameters, studio, isOutdated = () => false) {
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
  if (isOutdated()) return {};
  const state = { id, part: "curves", x: "step" };
  const keep = () => studio.keep("run", { id, part: state.part === "curves" ? null : state.part, x: state.x === "step" ? null : state.x });
  const context = { studio, id, state, keep };
  const header = createHeader(run, context), parts = {}, content = make("div", { class: "run-part" });
  const links = Object.fromEntries(Object.entries(PARTS).map(([part, [title]]) =>
    [part, make("a", { href: studio.makeAddress("run", { id, part: part === "curves" ? null : part }), "data-part": part }, title)]));
  const nav = make("nav", { class: "run-parts", "aria-label": "Parts of the run" }, ...Object.values(links));
  const updated = new Map();  // part → what it shows

  const getRow = () => studio.rows.get(id) ?? run;
  // Only the part that is open is kept up to date.
  const updatePart = async () => {
    if (updated.get(state.part) === run) return;
    updated.set(state.part, run);
    await parts[state.part].update?.(run, getRow());
  };
  const open = (next) => {
    state.part = next.get("part") in PARTS ? next.get("part") : "curves";
    state.x = ["tokens", "seconds"].includes(next.get("x")) ? next.get("x") : state.x;
    for (const [part, link] of Object.entries(links)) {
      if (part === state.part) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!parts[state.part]) {
      parts[state.part] = PARTS[state.part][1](run, context);
      updated.set(state.part, run);
    }
    content.replaceChildren(parts[state.part].element);
    updatePart().catch(studio.showError);
    parts[state.part].show?.();
  };
  const countSamples = () => { links.samples.replaceChildren("Samples", ...run.samples.length ? [make("span", { class: "run-count" }, formatCount(run.samples.length))] : []); };

  element.append(header.element, nav, content);
  open(parameters);
  countSamples();

  let timer = null, isBusy = false, isClosed = false, fetchedAt = performance.now(), shownState = run.state;
  const refresh = async () => {
    timer = null;
    if (isBusy) return schedule(MIN_SECONDS);
    isBusy = true;
    fetchedAt = performance.now();
    try {
      run = await studio.get("/api/run", { id, ...parts[state.part].getQuery?.() });
      if (isClosed) return;
      header.update(run, getRow());
      countSamples();
      await updatePart();
    } catch (error) {
      if (isClosed || !studio.rows.get(id)) return;
      header.update(run, getRow());
      header.showError(error);
    } finally {
      isBusy = false;
    }
  };
  const schedule = (seconds) => { if (!isClosed) timer ??= setTimeout(refresh, 1000 * seconds); };
  return {
    id, open,
    update(changed) {
      const row = changed.find((each) => each.id === id);
      if (!row) return;
      if (row.is_gone) return header.showGone();
      if (row.state !== shownState) { clearTimeout(timer); timer = null; fetchedAt = -Infinity; }  // at once
      shownState = row.state;
      const seconds = chooseSeconds(row) - (performance.now() - fetchedAt) / 1000;
      if (seconds > 0) header.update(run, row);  // otherwise it is drawn together with the rest
      schedule(Math.max(0, seconds));
    },
    close() { isClosed = true; clearTimeout(timer); },
  };
}
