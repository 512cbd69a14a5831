// The deleted runs, with a button to restore each.
import { make, makeButton } from "../../../page/components/elements.js";
import { formatBytes, formatPlural } from "../../../page/components/numbers.js";
import { formatAge } from "./runs-row.js";

export function createTrash(studio, actions) {
  const list = make("div"), dialog = make("dialog", { class: "runs-trash", "aria-label": "Deleted runs" });
  const close = makeButton("Close", () => dialog.close());
  const empty = makeButton("Empty the trash …", () => { empty.hidden = true; confirm.hidden = false; confirm.focus(); });
  const confirm = makeButton("", async () => {
    try {
      const { removed } = await studio.send("/api/empty-trash");
      studio.showMessage(`${formatPlural(removed, "run")} removed for good.`);
      dialog.close();
    } catch (error) {
      studio.showError(error);
    }
  }, { class: "runs-danger", hidden: true });
  dialog.append(make("h2", {}, "Deleted runs"), list, make("div", { class: "row" }, close, empty, confirm));

  async function fill() {
    const deleted = await studio.get("/api/trash");
    empty.hidden = deleted.length === 0;
    confirm.hidden = true;
    confirm.textContent = `Remove ${formatPlural(deleted.length, "run")} for good (${formatBytes(deleted.reduce((sum, { bytes }) => sum + bytes, 0))})`;
    list.replaceChildren(deleted.length === 0 ? make("p", { class: "hint" }, "The trash is empty. Deleted runs are moved to .trash in their folder, and stay there until you remove them.")
      : make("ul", { class: "runs-deleted" }, ...deleted.map(({ token, path, kind, bytes, deleted: time }) => make("li", {},
        make("span", {}, make("bdi", {}, path), make("span", { class: "runs-more" }, `${kind}, ${formatBytes(bytes)}, deleted ${formatAge(time)}`)),
        makeButton("Restore", async () => { await actions.restore([token]); fill(); }, { class: "small", "aria-label": `Restore ${path}` })))));
  }
  return {
    dialog,
    async open() {
      await fill();
      dialog.showModal();
    },
  };
}
