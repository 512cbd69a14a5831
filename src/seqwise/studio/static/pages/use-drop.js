// A place to drop a file, or to choose one.
import { make } from "../../../page/components/elements.js";

export function makeDrop(text, accept, onFile) {
  const input = make("input", { type: "file", accept, class: "unseen" });
  const zone = make("label", { class: "use-drop" }, input, make("span", {}, text));
  input.addEventListener("change", () => { if (input.files[0]) onFile(input.files[0]); input.value = ""; });
  zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("is-over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("is-over");
    if (event.dataTransfer.files[0]) onFile(event.dataTransfer.files[0]);
  });
  return zone;
}
