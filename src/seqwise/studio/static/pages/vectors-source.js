// The choice of vectors: a file in the folders, the embedding of a run, or a file that is sent to the server.
import { make, makeButton, makeId } from "../../../page/components/elements.js";
import { formatBytes, formatWhole } from "../../../page/components/numbers.js";

export const MAX_UPLOAD = 32_000_000;  // bytes that the server accepts
const SUFFIXES = ".safetensors,.bin,.vec,.txt";
const TEXT_TASKS = ["language", "masked", "classify", "tag", "translate", "caption"];

const describeFile = ({ id, num_words: words, dim, num_bytes: bytes }) =>
  `${id} (${[words && formatWhole(words) + " words", dim && dim + " dimensions", formatBytes(bytes)].filter(Boolean).join(", ")})`;

// A source is { file }, { run } or { upload }; its key, "file:…", is part of the address.
export const getKey = (source) => Object.entries(source).map(([kind, id]) => `${kind}:${id}`)[0];

export function readKey(key) {
  const [, kind, id] = /^(file|run|upload):(.+)$/s.exec(key ?? "") ?? [];
  return kind ? { [kind]: id } : null;
}

// `onSelect(source)` is called when the user has chosen one.
export function makeSourceChoice(files, rows, studio, onSelect) {
  const id = makeId("vectors"), select = make("select", { id });
  const runs = rows.filter(({ kind, task, state, model }) => kind === "run" && TEXT_TASKS.includes(task) && state !== "failed" && model !== "ngram");
  const makeGroup = (label, options) => options.length > 0 && make("optgroup", { label }, ...options);
  const uploads = make("optgroup", { label: "Sent from this computer", hidden: true }), sources = new Map();
  const makeOption = (source, text) => {
    sources.set(getKey(source), source);
    return make("option", { value: getKey(source) }, text);
  };
  const fill = () => select.replaceChildren(...[make("option", { value: "" }, "Choose …"),
    makeGroup("Files", files.map((file) => makeOption({ file: file.id }, describeFile(file)))),
    makeGroup("Embeddings of runs", runs.map((run) => makeOption({ run: run.id }, `${run.name} · ${run.model}, ${run.task}`))), uploads].filter(Boolean));
  fill();
  select.addEventListener("change", () => { if (sources.has(select.value)) onSelect(sources.get(select.value)); });

  const addUpload = (source, name) => { uploads.append(makeOption(source, name)); uploads.hidden = false; };
  const input = make("input", { type: "file", accept: SUFFIXES, class: "unseen", tabindex: "-1", "aria-hidden": "true" });
  const send = async (file) => {
    if (!file) return;
    if (file.size > MAX_UPLOAD) return studio.showError({ problem: `${file.name} has ${formatBytes(file.size)}; up to ${formatBytes(MAX_UPLOAD)} can be sent.`, fix: "Put a larger file into a folder of the studio." });
    try {
      const source = { upload: await studio.upload(file) };
      addUpload(source, file.name);
      onSelect(source);
    } catch (error) { studio.showError(error); }
  };
  input.addEventListener("change", () => { send(input.files[0]); input.value = ""; });
  const button = makeButton("Open a file …", () => input.click());
  const element = make("div", { class: "row vectors-source" }, make("label", { for: id }, "Vectors"), select, button, input);
  return { element, isEmpty: files.length + runs.length === 0, show(source) {
    if (source?.upload && !sources.has(getKey(source))) addUpload(source, "file of before");  // the page was loaded again
    if (source?.run && !sources.has(getKey(source))) select.append(makeOption(source, source.run));  // a trial of a comparison
    select.value = source ? getKey(source) : "";
  } };
}
