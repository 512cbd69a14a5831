// Comparisons: a list of all of them, or one with its report, live while its trials run.
import { make } from "../../../page/components/elements.js";
import { loadStyle } from "../styles.js";
import { showList } from "./compare-list.js";
import { showComparison } from "./compare-one.js";

export async function show(element, parameters, studio) {
  await loadStyle("compare");
  let view = null;
  const open = async (chosen) => {
    const id = chosen.get("id");
    view?.close();
    element.replaceChildren();
    try {
      view = await (id ? showComparison(element, id, studio) : showList(element, studio));
    } catch (error) {
      if (!error.problem) throw error;
      element.replaceChildren(make("h1", {}, "Comparisons"), studio.makeError(error), make("p", {}, make("a", { href: studio.makeAddress("compare") }, "All comparisons")));
      view = { update() {}, close() {} };
    }
    view.id = id;
    view.showPart?.(chosen.get("part"));
  };
  await open(parameters);
  return {
    update: (rows) => view?.update(rows),
    change: (chosen) => chosen.get("id") === view.id ? view.showPart?.(chosen.get("part")) : open(chosen),
    close: () => view?.close(),
  };
}
