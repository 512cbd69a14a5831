// What can be done with runs and comparisons on every page: stop, resume, delete, restore.
import { makeButton } from "../../page/components/elements.js";
import { formatPlural, joinNames } from "../../page/components/numbers.js";

const MAX_NAMES = 3;  // in a message
const listNames = (rows) => rows.length > MAX_NAMES ? formatPlural(rows.length, "run") : joinNames(rows.map(({ name }) => name));

export const canStop = (row) => row.state === "running" && !row.parent;
export const canResume = (row) => (row.state === "stopped" || row.state === "failed") && !row.parent;
export const canDelete = (row) => row.state !== "running" && !row.parent;

// A button that does something, but not twice at the same time; meanwhile it shows `busyText`, and it keeps the focus.
export function makeActionButton(text, busyText, act, attributes = {}) {
  const button = makeButton(text, async () => {
    if (button.ariaBusy) return;
    button.ariaBusy = "true";
    button.textContent = busyText;
    try { await act(); }
    finally { button.ariaBusy = null; button.textContent = text; }
  }, attributes);
  return button;
}

// Each function changes rows, and shows what was done or the first problem. `remove` returns whether all were deleted;
// `onRestore` is called when the user has undone it.
export function createActions(studio) {
  // `describe(answers)` says what was done.
  async function changeAll(rows, path, describe) {
    const answers = [];
    try {
      for (const { id } of rows) answers.push(await studio.send(path, { id }));
    } catch (error) {
      studio.showError(error);
    }
    if (answers.length) studio.showMessage(`${listNames(rows.slice(0, answers.length))}: ${describe(answers)}.`);
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
    stop: (rows) => changeAll(rows, "/api/jobs/stop", (answers) => answers.every((answer) => answer.has_ended) ? "stopped" : "stopping as soon as the present state is saved"),
    resume: (rows) => changeAll(rows, "/api/jobs/resume", () => "resuming"),
  };
}
