// The page Inside: the views of one or two runs on the same text. They share pins: what is selected in one is selected in all.
import { make, makeButton } from "../../../page/components/elements.js";
import { createPins, drawPinBar } from "../../../page/components/pins.js";
import { chooseRun, makeEmpty } from "../choices.js";
import { loadStyle } from "../styles.js";
import { createInput, listRuns } from "./inside-input.js";
import { createQueue } from "./inside-results.js";
import { createView, nameView } from "./inside-view.js";

const MAX_ADDRESS_TEXT = 4000;  // characters
const FIRST_VIEWS = ["attention", "gates", "attribution", "states", "training"];  // the first one that applies, to all runs if possible, is shown if none is named
const WIDE = 860;  // pixels, from which the views are listed beside the figures

// A view in the address: its name, and its options as JSON.
function readView(value) {
  const [name, ...rest] = value.split(" ");
  try { return { name, values: rest.length ? JSON.parse(rest.join(" ")) : {} }; } catch { return { name, values: {} }; }
}
const writeView = ({ name, values }) => Object.keys(values).length ? `${name} ${JSON.stringify(values)}` : name;

export async function show(element, parameters, studio) {
  await loadStyle("inside");
  const known = parameters.getAll("id").filter((id) => studio.rows.get(id)?.task);
  const first = chooseRun(listRuns(studio.rows, []));
  if (!first && !known.length) {
    element.append(make("h1", {}, "Inside"), makeEmpty(studio, "There are no runs to look inside yet.", "seqwise train builtin:docs"));
    return { update: () => { if (listRuns(studio.rows, []).length) studio.reload(); } };
  }
  const input = { ids: known.length ? known.slice(0, 2) : [first.id], text: parameters.get("text") ?? "", upload: null, about: null };
  const page = createPage(element, studio, input, parameters.getAll("view").map(readView));
  const unknown = parameters.getAll("id").filter((id) => !known.includes(id));
  if (unknown.length) studio.showError({ problem: `there is no run ${unknown.join(", ")}.`, fix: "It may have been moved or deleted." });
  return page;
}

function createPage(element, studio, input, wanted) {
  const pins = createPins(), queue = createQueue(studio), bar = drawPinBar(pins);
  const list = make("div", { class: "inside-list" }), stack = make("div", { class: "inside-views" });
  const page = { studio, pins, queue, getInput: () => input, getText: () => input.text || (input.about?.runs[0].example?.text ?? "") };
  let open = [], controller = null;

  const listWanted = () => open.length ? open.map(({ name, values }) => ({ name, values })) : wanted;
  const makeParameters = (ids = input.ids) => ({ id: ids, text: input.text.length <= MAX_ADDRESS_TEXT ? input.text : "", view: listWanted().map(writeView) });
  const keep = () => studio.keep("inside", makeParameters());

  // --- open views
  function addView(name, values = {}) {
    const view = input.about.views.find((one) => one.name === name);
    if (!view || !view.reasons.includes(null)) return null;
    const created = createView(view, values, page, { onChange: keep, onClose: () => removeView(name) });
    open.push(created);
    stack.append(created.element);
    created.refresh();
    return created;
  }
  function removeView(name) {
    const at = open.findIndex((view) => view.name === name);
    if (at < 0) return;
    const [view] = open.splice(at, 1);
    view.close();
    view.element.remove();
    if (!open.length) showEmpty();
    change();
  }
  const showEmpty = () => stack.replaceChildren(make("p", { class: "hint" }, "Choose a view from the list."));
  const change = () => { wanted = []; showList(); keep(); };
  // Shows one view alone, or moves to it if it is open.
  function selectView(name) {
    const shown = open.find((view) => view.name === name);
    if (!shown) {
      for (const view of open) view.close();
      open = [];
      stack.replaceChildren();
      addView(name);
      change();
    }
    stack.querySelector(`[data-view=${name}]`)?.scrollIntoView({ block: "nearest" });
  }
  function toggleView(name) {
    if (open.some((view) => view.name === name)) return removeView(name);
    if (!open.length) stack.replaceChildren();
    const added = addView(name);
    change();
    added?.element.scrollIntoView({ block: "start" });
  }

  // --- the list of views
  function showList() {
    const focused = document.activeElement?.dataset.key, { views, runs } = input.about;
    const suitable = views.filter(({ reasons }) => reasons.includes(null)), others = views.filter((view) => !suitable.includes(view));
    const isOpen = list.querySelector("details")?.open ?? innerWidth > WIDE;
    list.replaceChildren(make("ul", {}, ...suitable.map(makeEntry)),
      others.length && make("details", { class: "inside-missing", open: isOpen }, make("summary", {}, runs.length > 1 ? "Not for these runs" : "Not for this run"),
        make("ul", {}, ...others.map(({ name, reasons }) => make("li", { "data-view": name },
          make("b", {}, nameView(name)), ...[...new Set(reasons)].map((reason) => make("span", {}, reason)))))));
    if (focused) list.querySelector(`[data-key="${focused}"]`)?.focus();
  }
  function makeEntry({ name, description }) {
    const isShown = open.some((view) => view.name === name);
    const choose = makeButton("", () => selectView(name), { class: "inside-choose", "aria-current": isShown ? "true" : null, "data-key": name });
    choose.append(make("b", {}, nameView(name)), make("span", {}, description));
    const label = isShown ? `Remove ${name}` : `Add ${name} below`;
    return make("li", { "data-view": name, class: isShown ? "is-shown" : null }, choose,
      makeButton(isShown ? "−" : "+", () => toggleView(name), { class: "inside-add", "aria-label": label, title: label, "data-key": name + " add" }));
  }

  // --- reading the runs: which views apply, and what is shown
  const findFirst = (suits) => FIRST_VIEWS.find((name) => input.about.views.some((view) => view.name === name && suits(view.reasons)));
  async function refresh() {
    controller?.abort();
    const own = controller = new AbortController(), former = listWanted();
    for (const view of open) view.close();
    const progress = make("progress", { "aria-label": "Progress of reading the run" });
    fields.showWaiting(make("p", { class: "row hint" }, progress, "Reading the run and an example …"));
    try {
      const request = { runs: input.ids, text: input.text || null, upload: input.upload?.id ?? null };
      input.about = await queue.compute("describe_views", request, { signal: own.signal,
        onEvent: ({ progress: [done, total] = [] }) => { if (total) Object.assign(progress, { max: total, value: done }); } });
    } catch (error) {
      if (own !== controller || own.signal.aborted) return;
      fields.showWaiting(studio.makeError(error), makeButton("Try again", refresh, { class: "small" }));
      return;
    }
    if (own !== controller) return;
    fields.showAbout(input.about);
    open = [];
    stack.replaceChildren();
    for (const { name, values } of former) addView(name, values);
    if (!open.length && !former.length) addView(findFirst((reasons) => reasons.every((reason) => reason === null)) ?? findFirst((reasons) => reasons.includes(null)));
    if (!open.length) showEmpty();
    change();
  }

  const fields = createInput(studio, input, pins, { onRuns: (ids) => studio.go("inside", makeParameters(ids)), onText: () => { keep(); refresh(); } });
  const notice = make("p", { class: "inside-notice row", role: "status", hidden: true }, "The run is being trained, and has changed.",
    makeButton("Show it again", () => { notice.hidden = true; refresh(); }, { class: "small" }));
  const onKey = (event) => { if (event.key === "Escape") pins.clear(); };
  addEventListener("keydown", onKey);
  element.append(make("h1", {}, "Inside"), fields.element, notice, make("div", { class: "inside-columns" }, make("nav", { "aria-label": "Views" }, list), stack), bar);
  refresh();
  return {
    update: (rows) => { if (rows.some(({ id, state }) => input.ids.includes(id) && state === "running") && input.about) notice.hidden = false; },
    close() {
      removeEventListener("keydown", onKey);
      controller?.abort();
      for (const view of open) view.close();
    },
  };
}
