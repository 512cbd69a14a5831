// One open view: its options, its figures for one or two runs, the command that shows it, and files of it.
import { drawFigures } from "../../../page/components/figure-list.js";
import { make, makeButton, makeCopyButton, makeId } from "../../../page/components/elements.js";
import { keepUnitsTogether } from "../../../page/components/numbers.js";
import { makeOptions } from "./inside-options.js";
import { download } from "./inside-results.js";

const MAX_FIGURES = 4;  // that are shown at first
const FORMATS = [["html", "Page"], ["png", "PNG"], ["svg", "SVG"], ["json", "JSON"]];

export const nameView = (name) => name[0].toUpperCase() + name.slice(1);

// What to compute: one request for all runs of a view that compares them, otherwise one for each run that it applies to.
// A run that is being trained would choose another example with other weights, so it is sent the one that is shown.
function listRequests(view, values, { ids, text, upload, about }, rows) {
  const { text: words = null, ...options } = values, input = view.reads === "input";
  const makeRequest = (runs, shared) => ({ view: view.name, runs, options, text: input ? text || shared : view.reads === "sample" ? words : null,
    ...input && upload ? { upload: upload.id, file_name: upload.name } : {} });
  const getShared = (id, at) => about.runs[at].text ?? (rows.get(id)?.state === "running" ? about.runs[at].example_text : null);
  if (view.is_combined) return [makeRequest(ids, getShared(ids[0], 0))];
  return ids.flatMap((id, at) => view.reasons[at] === null ? [makeRequest([id], getShared(id, at))] : []);
}

// `page` has studio, pins, queue, getInput() and getText(). `onChange` is called when an option changes, `onClose` by the button.
export function createView(view, values, page, { onChange, onClose }) {
  const { studio, pins, queue } = page, titleId = makeId("view");
  const content = make("div", { class: "inside-results" });
  let controller = null;

  // Computes what is not known yet, and draws it.
  async function refresh() {
    controller?.abort();
    const own = controller = new AbortController(), input = page.getInput();
    const requests = listRequests(view, values, input, studio.rows);
    const columns = requests.map((request, at) => makeColumn(request, requests.length > 1 ? input.about.runs[input.ids.indexOf(request.runs[0])].name : null, content.children[at]));
    content.replaceChildren(...columns.map(({ element }) => element));
    content.classList.toggle("has-two", columns.length > 1);
    for (const column of columns) await column.fill(own);
  }

  // A column keeps the former figures, faint, until the new ones are there.
  function makeColumn(request, name, former) {
    const body = former?.querySelector(".inside-body") ?? make("div", { class: "inside-body" });
    const bar = make("progress", { "aria-label": `Progress of ${view.name}` }), status = make("span", { class: "hint", role: "status" }, "waiting …");
    const cancel = makeButton("Cancel", () => controller?.abort(), { class: "small" });
    const waiting = make("div", { class: "inside-waiting row", hidden: Boolean(queue.get("compute_view", request)) }, bar, status, cancel);
    const footer = make("div", { class: "inside-footer" });
    const element = make("section", { class: "inside-result", "aria-label": [nameView(view.name), name].filter(Boolean).join(", ") },
      name && make("h3", {}, make("bdi", {}, name)), waiting, body, footer);
    body.classList.add("is-stale");

    async function fill(own) {
      try {
        status.textContent = "computing …";
        const result = await queue.compute("compute_view", request, { signal: own.signal, onEvent: ({ progress }) => { if (progress) showProgress(bar, status, progress); } });
        if (own !== controller) return;
        body.replaceChildren(...makeResult(result));
        drawFigures(body.lastElementChild, result.figures, { scales: studio.scales, pins });
        foldFigures(body);
        footer.replaceChildren(...makeFooter(request, result));
      } catch (error) {
        if (own !== controller) return;
        const again = makeButton("Compute", refresh, { class: "small" });
        if (own.signal.aborted) body.replaceChildren(make("p", { class: "row hint" }, "Cancelled.", again));
        else body.replaceChildren(studio.makeError(error));
        footer.replaceChildren();
      }
      waiting.remove();
      body.classList.remove("is-stale");
      element.dataset.state = "ready";
    }
    return { element, fill };
  }

  function makeFooter(request, { command }) {
    const source = make("pre", {}, command);
    const save = make("div", { class: "choice", role: "group", "aria-label": `Save ${view.name}` }, make("span", {}, "Save as"),
      ...FORMATS.map(([format, text]) => {
        const button = makeButton(text, async () => {
          button.disabled = true;
          try { download(await studio.call("save_view", { ...request, format })); } catch (error) { studio.showError(error); }
          button.disabled = false;
        }, { "data-format": format });
        return button;
      }));
    return [make("div", { class: "command" }, source, makeCopyButton(source)), save];
  }

  const remove = makeButton("×", onClose, { class: "inside-remove", "aria-label": `Remove ${view.name}`, title: "Remove" });
  const options = makeOptions(view, values, { pins, getText: page.getText, onChange: () => { onChange(); refresh(); } });
  const missing = page.getInput().about.runs.flatMap(({ name }, at) => view.reasons[at] === null ? [] : [make("p", { class: "hint" }, `${name}: ${view.reasons[at]}`)]);
  const element = make("section", { class: "inside-view card", "aria-labelledby": titleId, "data-view": view.name },
    make("header", {}, make("h2", { id: titleId, tabindex: "-1" }, nameView(view.name)), make("p", { class: "hint" }, view.description), remove), options, ...missing, content);
  return { name: view.name, values, element, refresh, close: () => controller?.abort() };
}

// Hides the last of many figures behind a button that names them.
function foldFigures(body) {
  const others = [...body.lastElementChild.children].slice(MAX_FIGURES);
  if (others.length < 2) return;
  for (const figure of others) figure.hidden = true;
  const names = others.map((figure) => figure.querySelector("figcaption").textContent);
  const more = makeButton(`Show ${others.length} more figures`, () => { for (const figure of others) figure.hidden = false; more.remove(); });
  more.classList.add("inside-more");
  more.append(make("span", {}, names.join(" · ")));
  body.append(more);
}

function showProgress(bar, status, [done, total]) {
  if (total) Object.assign(bar, { max: total, value: Math.min(done, total) });
  status.textContent = total ? `${Math.round(100 * Math.min(1, done / total))} %` : "computing …";
}

function makeResult({ title, summary }) {
  return [make("p", { class: "label" }, title), make("div", { class: "sentences" }, ...summary.map((sentence) => make("p", {}, keepUnitsTogether(sentence)))), make("div")];
}
