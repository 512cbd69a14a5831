// What the page looks at: one or two runs, and what they read.
import { make, makeButton, makeId } from "../../../page/components/elements.js";
import { shorten } from "../../../page/components/numbers.js";
import { drawTokenText } from "../../../page/components/tokens.js";
import { makeRunSelect } from "../choices.js";
import { debounce } from "./inside-options.js";

const FILE_TASKS = { caption: ["image", "image/png,image/jpeg,image/webp,image/bmp,image/gif"], forecast: ["CSV file", ".csv,.tsv"] };
const MAX_SHOWN = 600;  // characters of an example
const TYPING = 900;  // milliseconds after which a text is read

// All runs that can be chosen, and those of the address, such as a trial of a comparison.
export function listRuns(rows, ids) {
  const chosen = ids.map((id) => rows.get(id)).filter((row) => row?.parent);
  return [...rows.listTop(), ...chosen].filter(({ task }) => task).sort((a, b) => a.task.localeCompare(b.task) || a.id.localeCompare(b.id));
}

function makeRunField(label, runs, selected, onSelect, empty = null) {
  const id = makeId("run");
  return make("div", { class: "inside-field" }, make("label", { for: id }, label), makeRunSelect(runs, selected, onSelect, { empty, id }));
}

function makeLinks(studio, id) {
  const isComparison = studio.rows.get(id)?.kind === "comparison";
  return [make("a", { class: "button small", href: studio.makeAddress(isComparison ? "compare" : "run", { id }) }, isComparison ? "Open the comparison" : "Open the run"),
    make("a", { class: "button small", href: studio.makeAddress("use", { id }) }, "Use")];
}

// `input` is { ids, text, upload, about }, whose text and upload are changed in place; `onRuns(ids)` chooses other runs,
// `onText` is called when what they read has changed.
export function createInput(studio, input, pins, { onRuns, onText }) {
  const runs = listRuns(studio.rows, input.ids), [first, second] = input.ids, task = studio.rows.get(first).task;
  const near = [...runs.filter((row) => row.task === task), ...runs.filter((row) => row.task !== task)].filter(({ id }) => id !== first);
  const shown = make("div", { class: "inside-shown", role: "status" });
  const tasks = new Set(input.ids.map((id) => studio.rows.get(id)?.task)), fileTask = [...tasks].find((one) => one in FILE_TASKS);
  const text = [...tasks].some((one) => !(one in FILE_TASKS)) ? makeText() : null, file = fileTask ? makeFile(...FILE_TASKS[fileTask]) : null;

  function makeText() {
    const id = makeId("text"), area = make("textarea", { id, rows: 2, maxlength: 100_000, dir: "auto",
      placeholder: tasks.has("masked") ? "empty: a validation example. [MASK] marks what is predicted" : "empty: a validation example" });
    area.value = input.text;
    const read = debounce(() => { if (area.value.trim() !== input.text) { input.text = area.value.trim(); onText(); } }, TYPING);
    area.addEventListener("input", read);
    area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) read.now(); });
    return { element: make("div", { class: "inside-field inside-text" }, make("label", { for: id }, "Text"), area),
      set: (value) => { area.value = value; area.focus(); read.now(); } };
  }

  function makeFile(kind, accept) {
    const id = makeId("file"), chooser = make("input", { id, type: "file", accept }), name = make("span", { class: "hint" }, input.upload?.name ?? "");
    const send = async (chosen) => {
      if (!chosen) return;
      try {
        input.upload = { id: await studio.upload(chosen), name: chosen.name };
        name.textContent = chosen.name;
        onText();
      } catch (error) { studio.showError(error); }
    };
    chooser.addEventListener("change", () => send(chooser.files[0]));
    const zone = make("div", { class: "inside-field inside-text inside-drop" }, make("label", { for: id }, `Your own ${kind}: choose it, or drop it here`), chooser, name);
    zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("is-over"); });
    zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
    zone.addEventListener("drop", (event) => { event.preventDefault(); zone.classList.remove("is-over"); send(event.dataTransfer.files[0]); });
    return { element: zone, clear: () => { chooser.value = ""; name.textContent = ""; input.upload = null; onText(); } };
  }

  // Names what is shown: the example or the text, token by token, or the problem with it.
  function showAbout(about) {
    const isOwn = Boolean(input.text || input.upload), [{ example, reads_file: readsFile }] = about.runs;
    const isSame = about.runs.every((run) => run.example?.text === example?.text), listed = isSame ? about.runs.slice(0, 1) : about.runs;
    shown.replaceChildren(...about.runs.filter(({ problem }) => problem).map(({ name, problem }) => make("div", {}, make("b", {}, name), studio.makeError(problem))),
      ...listed.filter((run) => run.example).map((run) => showExample(run, isOwn, !isSame)),
      make("p", { class: "row" },
        !isOwn && text && example && !readsFile && makeButton("Edit this text", () => text.set(example.text), { class: "small" }),
        isOwn && makeButton("Show a validation example", () => { if (input.upload) file.clear(); if (input.text) text.set(""); }, { class: "small" })));
  }
  function showExample({ name, example, reads_file: readsFile }, isOwn, isNamed) {
    const about = make("p", { class: "hint" }, isNamed && make("b", {}, name + ": "), isOwn ? "" : `Shown: ${example.description}.`);
    if (example.image) return make("div", { class: "row" }, make("img", { class: "inside-image", src: example.image, alt: "the image that is described" }), about);
    if (readsFile) return about;
    const figure = { title: "Text", tokens: example.tokens ?? [], values: (example.tokens ?? []).map(() => null), scale: "sequential", value_label: "" };
    return make("div", {}, about, example.tokens ? drawTokenText(figure, { scales: studio.scales, pins }) : make("bdi", { class: "inside-example" }, shorten(example.text.replace(/\s+/g, " "), MAX_SHOWN)));
  }

  const element = make("section", { class: "inside-input card", "aria-label": "Runs and text" },
    make("div", { class: "inside-runs" },
      makeRunField("Run", runs, first, (id) => onRuns([id, ...second && second !== id ? [second] : []])),
      makeRunField("Beside it", near, second, (id) => onRuns([first, ...id ? [id] : []]), "no other run"),
      make("p", { class: "row inside-links" }, ...makeLinks(studio, first))),
    make("div", { class: "inside-read" }, text?.element, file?.element, shown));
  return { element, showAbout, showWaiting: (...children) => shown.replaceChildren(...children) };
}
