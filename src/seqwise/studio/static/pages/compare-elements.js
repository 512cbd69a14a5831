// Small parts of the pages of comparisons.
import { make } from "../../../page/components/elements.js";
import { whenVisible } from "../rows.js";

const POLL = 2000, HURRY = 300;  // milliseconds: between two looks while trials run; after a change

const STATES = { running: "running", finished: "finished", stopped: "stopped", failed: "failed", waiting: "waiting" };
export const makeState = (state, text = STATES[state]) => make("span", { class: "state is-" + state }, text);

// A bar with its text below.
export function makeProgress(share, text) {
  const percent = Math.round(100 * share);
  return make("span", { class: "compare-progress" },
    make("span", { class: "compare-bar", role: "progressbar", "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": text },
      make("i", { style: `width: ${percent}%` })), make("span", { class: "compare-small compare-soft" }, text));
}

// Calls `refresh` now and, as long as it returns true, again and again; `hurry` makes the next time soon.
export function createTimer(refresh, studio) {
  let timer = null, isRunning = false, isClosed = false, isMissed = false;
  const wait = (time) => { clearTimeout(timer); timer = setTimeout(run, time); };
  async function run() {
    if (isRunning || isClosed) { isMissed = true; return; }
    isRunning = true;
    await whenVisible();
    isMissed = false;
    let continues = true;
    try {
      continues = await refresh();
    } catch (error) {
      if (timer === null) throw error;  // the first time: the page shows it
      studio.showError(error);
      continues = false;
    } finally {
      isRunning = false;
    }
    timer ??= 0;
    if (!isClosed && (continues || isMissed)) wait(isMissed ? HURRY : POLL);
  }
  return { run, hurry: () => { if (isRunning) isMissed = true; else wait(HURRY); }, close: () => { isClosed = true; clearTimeout(timer); } };
}

// Replaces an element by a newer version of it: what has the focus, is unfolded or scrolled stays so.
export function swap(old, fresh) {
  const list = (element, selector) => [...element.querySelectorAll(selector)], targets = "a, button, summary, [tabindex]";
  const focused = list(old, targets).indexOf(document.activeElement), folds = list(old, "details"), scrollers = list(old, ".scroller");
  list(fresh, "details").forEach((fold, at) => { if (folds[at]) fold.open = folds[at].open; });
  old.replaceWith(fresh);
  list(fresh, ".scroller").forEach((scroller, at) => { scroller.scrollLeft = scrollers[at]?.scrollLeft ?? 0; });
  if (focused >= 0) list(fresh, targets)[focused]?.focus({ preventScroll: true });
  return fresh;
}
