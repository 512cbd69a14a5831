// What can be done with runs and comparisons on every page: stop, resume, delete, restore.
import { makeButton } from "../../page/components/elements.js";
import { formatPlural, joinNames } from "../../page/components/numbers.js";

const MAX_NAMES = 3;  // in a message
const listNames = (rows) => rows.length > MAX_NAMES ? formatPlural(rows.length, "run") : joinNames(rows.map(({ name }) => name));

export const canStop = (row) => row.state === "running" && !row.parent;
export const canResume = (row) => (row.state === "stopped" || row.state === "failed") && !row.parent;
export const canDelete = (row) => row.state !== "running" && !row.parent;

// Each function changes rows, and shows what was done or the first problem. `remove` returns whether all were deleted;
// `onRestore` is called when the user has undone it.
export function createActions(studio) {
  async function changeAll(rows, change, verb) {
    const done = [];
    try {
      for (const row of rows) { await change(row); done.push(row); }
    } catch (error) {
      studio.showError(error);
    }
    if (done.length) studio.showMessage(`${listNames(done)}: ${verb}.`);
  }

  async function restore(tokens, name = formatPlural(tokens.length, "run")) {
    try {
      await studio.send("/api/restore", { tokens });
      studio.showMessage(`${name} restored.`);
      return true;
    } catch (error) {
      studio.showError(error);
      return false;
    }
  }

  async function remove(rows, onRestore = () => {}) {
    const tokens = [];
    try {
      for (const { id } of rows) tokens.push(...(await studio.send("/api/delete", { ids: [id] })).tokens);
    } catch (error) {
      studio.showError(error);
    }
    if (tokens.length === 0) return false;
    const name = listNames(rows.slice(0, tokens.length));
    const undo = makeButton("Undo", async () => { message.remove(); if (await restore(tokens, name)) onRestore(); }, { class: "small" });
    const message = studio.showMessage(`${name} moved to the trash.`, { action: undo });
    return tokens.length === rows.length;
  }

  return {
    restore, remove,
    stop: (rows) => changeAll(rows, ({ id }) => studio.send("/api/jobs/stop", { id }), "stopping; the present state is saved"),
    resume: (rows) => changeAll(rows, ({ id }) => studio.send("/api/jobs/resume", { id }), "resuming"),
  };
}
