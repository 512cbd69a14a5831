// The list of all comparisons.
import { make, makeNamedChip } from "../../../page/components/elements.js";
import { formatPlural } from "../../../page/components/numbers.js";
import { makeEmpty } from "../choices.js";
import { createTimer, makeProgress, makeState } from "./compare-elements.js";

const EXAMPLE = "seqwise compare builtin:dates --task translate --models gru,lstm --budget 1m";

function makeBest({ best, has_report: isFinal }) {
  if (!best) return make("span", { class: "compare-soft" }, "no result yet");
  return make("span", {}, make("span", { class: "label" }, isFinal ? "best mean over seeds" : "ahead so far, by mean validation"),
    make("span", { class: "compare-best" }, make("bdi", {}, best.name), " ", make("span", { class: "compare-soft" }, best.text)));
}

function makeCard(comparison, studio) {
  const { id, state, problem, families = [], num_trials: total, num_done: done, num_failed: failed } = comparison, row = studio.rows.get(id) ?? {};
  const about = [row.task, row.data].filter(Boolean).join(" on ");
  const changed = row.changed && new Date(1000 * row.changed).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  return make("li", { class: "card compare-card", "data-id": id },
    make("div", { class: "compare-card-name" }, make("a", { href: studio.makeAddress("compare", { id }) }, make("bdi", {}, row.name ?? id)),
      make("span", { class: "compare-soft" }, about), make("span", { class: "compare-soft compare-small" }, changed)),
    make("div", {}, makeState(state), problem ? make("p", { class: "compare-reason" }, problem)
      : makeProgress(total ? (done + failed) / total : 0, `${done} of ${formatPlural(total, "trial")} done` + (failed ? `, ${failed} failed` : ""))),
    make("div", { class: "compare-chips" }, ...families.map(({ name, style }) => makeNamedChip(style, name, false))),
    problem ? null : make("div", {}, makeBest(comparison)));
}

export async function showList(element, studio) {
  const list = make("ul", { class: "compare-list" });
  element.append(make("div", { class: "page-head" }, make("h1", {}, "Comparisons"),
    make("a", { class: "button primary", href: studio.makeAddress("new", { command: "compare" }) }, "New comparison")), list);
  let last = "";
  async function refresh() {
    const comparisons = await studio.get("/api/comparisons"), text = JSON.stringify(comparisons);
    if (text !== last) {
      last = text;
      const getTime = ({ id }) => studio.rows.get(id)?.changed ?? 0;
      comparisons.sort((a, b) => (b.state === "running") - (a.state === "running") || getTime(b) - getTime(a));
      const focused = document.activeElement?.closest("[data-id]")?.dataset.id;
      list.replaceChildren(...comparisons.length ? comparisons.map((each) => makeCard(each, studio)) : [make("li", {}, makeEmpty(studio, "There are no comparisons yet.", EXAMPLE, { command: "compare" }))]);
      if (focused && list.isConnected) [...list.children].find((card) => card.dataset.id === focused)?.querySelector("a").focus({ preventScroll: true });
    }
    return comparisons.some(({ state }) => state === "running");
  }
  const timer = createTimer(refresh, studio);
  await timer.run();
  return { update: (rows) => { if (rows.some(({ kind, parent, is_gone: isGone }) => kind === "comparison" || parent || isGone)) timer.hurry(); }, close: timer.close };
}
