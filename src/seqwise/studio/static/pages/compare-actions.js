// What can be done with a comparison: stop, resume, delete, download its report.
import { make } from "../../../page/components/elements.js";
import { createActions, makeActionButton } from "../actions.js";

const FILES = { "report.html": "Report as a page", "report.json": "Report as JSON" };

export function createComparisonActions(id, studio, onChange) {
  const changes = createActions(studio);
  const makeAction = (text, busyText, change, attributes = {}) => makeActionButton(text, busyText, async () => { await change(); onChange(); }, attributes);
  const getRows = () => [studio.rows.get(id) ?? { id, name: id }];
  const remove = async () => { if (await changes.remove(getRows(), () => studio.go("compare", { id }))) studio.go("compare"); };

  return ({ state, num_failed: numFailed, downloads }) => [
    state === "running" && makeAction("Stop", "Stopping …", () => changes.stop(getRows())),
    (state === "stopped" || numFailed > 0 && state !== "running") && makeAction(state === "stopped" ? "Resume" : "Repeat what failed", "Resuming …", () => changes.resume(getRows()),
      { class: state === "stopped" ? "primary" : null }),
    ...downloads.map((name) => make("a", { class: "button", href: "/api/comparison/file?" + new URLSearchParams({ id, name }), download: "" }, FILES[name])),
    state !== "running" && makeAction("Delete", "Deleting …", remove, { class: "danger" }),
  ].filter(Boolean);
}
