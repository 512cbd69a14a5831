// The field of the data: a path, completed below the folder in which the studio was started, or built-in data.
import { make, makeButton, makeId } from "../../../page/components/elements.js";

export function makeData(studio, form, onChange) {
  const id = makeId("data"), list = make("datalist", { id: id + "-paths" });
  const control = make("input", { id, name: "data", type: "text", autocomplete: "off", spellcheck: "false", list: list.id, placeholder: "path of a file or folder", "aria-describedby": `${id}-help ${id}-problem` });
  const problem = make("p", { id: id + "-problem", class: "new-problem", "aria-live": "polite" });
  const chips = form.builtins.map(({ name, task, text }) => makeButton(name.replace("builtin:", ""), () => { control.value = name; onChange(); }, { class: "small", title: `${text} (${task})`, "aria-label": `Built-in data ${name}: ${text}` }));
  const element = make("div", { class: "new-field new-data", "data-name": "data" }, make("label", { for: id }, "Data"), control, list,
    make("div", { class: "new-chips" }, make("span", { class: "hint" }, "Built in:"), ...chips),
    make("p", { id: id + "-help", class: "new-help" }, "Text, table, CoNLL columns, parallel files, images with captions. Relative to ", make("code", {}, form.working_folder), "."), problem);
  let number = 0;

  async function complete() {
    const mine = ++number, prefix = control.value;
    const paths = prefix.startsWith("builtin") ? form.builtins.map(({ name }) => name) : await studio.get("/api/paths", { prefix });
    if (mine === number) list.replaceChildren(...paths.map((value) => make("option", { value })));
  }

  control.addEventListener("input", () => { complete().catch(() => {}); onChange(); });
  control.addEventListener("focus", () => { complete().catch(() => {}); }, { once: true });
  return {
    element, control, name: "data", get: () => control.value.trim(), set: (value) => { control.value = value; },
    showProblem(message) {
      problem.textContent = message ?? "";
      if (message) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    },
  };
}
