// Tags and a note of a run, edited in its row of the table.
import { make, makeButton } from "../../../page/components/elements.js";

const MAX_TAGS = 20, MAX_TAG = 40, MAX_NOTE = 2000;  // as the server allows

// Replaces the name cell of `cell` until the user saves or cancels; `onEnd` is then called.
export function editNotes(studio, row, cell, onEnd) {
  const { element, name } = cell;
  if (element.classList.contains("is-edited")) return name.querySelector("input").focus();
  element.classList.add("is-edited");
  const tags = make("input", { type: "text", value: row.tags.join(", "), placeholder: "baseline, to check", maxlength: MAX_TAGS * (MAX_TAG + 2) });
  const note = make("textarea", { maxlength: MAX_NOTE, rows: "2" }, row.note);
  const problem = make("div");
  const close = () => {
    element.classList.remove("is-edited");
    cell.forget();
    onEnd();
  };
  const save = async () => {
    const values = tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    const long = values.find((tag) => [...tag].length > MAX_TAG);
    try {
      if (long || values.length > MAX_TAGS) throw { problem: long ? `the tag ${long.slice(0, 50)} is too long.` : "there are too many tags.", fix: `At most ${MAX_TAGS} tags of ${MAX_TAG} characters.` };
      Object.assign(row, await studio.send("/api/notes", { id: row.id, tags: values, note: note.value }));
      close();
    } catch (error) {
      problem.replaceChildren(studio.makeError(error));
    }
  };
  const editor = make("form", { class: "runs-editor", "aria-label": `Tags and note of ${row.name}` }, make("b", {}, make("bdi", {}, row.name)),
    make("label", {}, make("span", {}, "Tags"), tags), make("label", {}, make("span", {}, "Note"), note), problem,
    make("div", { class: "row" }, make("button", { class: "primary small" }, "Save"), makeButton("Cancel", close, { class: "small" })));
  editor.addEventListener("submit", (event) => { event.preventDefault(); save(); });
  editor.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") close();
    if (event.key === "Enter" && event.target === note && (event.ctrlKey || event.metaKey)) save();
  });
  name.replaceChildren(editor);
  tags.focus();
}
