// What can be done with a comparison: stop, resume, delete, download its report.
import { make, makeButton } from "../../../page/components/elements.js";

const FILES = { "report.html": "Report as a page", "report.json": "Report as JSON" };

export function createActions(id, studio, onChange) {
  // Sends a change; the button is disabled meanwhile.
  const act = (button, change) => async () => {
    button.disabled = true;
    try {
      await change();
      onChange();
    } catch (error) {
      studio.showError(error);
    }
    button.disabled = false;
  };
  const makeAction = (text, change, attributes = {}) => {
    const button = makeButton(text, () => act(button, change)(), attributes);
    return button;
  };
  const restore = async (tokens) => {
    try {
      await studio.send("/api/restore", { tokens });
      studio.showMessage("The comparison is restored.");
    } catch (error) {
      studio.showError(error);
    }
  };
  async function remove() {
    const { tokens } = await studio.send("/api/delete", { ids: [id] });
    const undo = makeButton("Undo", () => { message.remove(); restore(tokens); }, { class: "small" });
    const message = studio.showMessage("The comparison was moved to the trash.", { action: undo });
    studio.go("compare");
  }

  return ({ state, num_failed: numFailed, downloads }) => [
    state === "running" && makeAction("Stop", async () => {
      await studio.send("/api/jobs/stop", { id });
      studio.showMessage("Stopping; what is trained is saved.");
    }),
    (state === "stopped" || numFailed > 0 && state !== "running") && makeAction(state === "stopped" ? "Resume" : "Repeat what failed", async () => {
      await studio.send("/api/jobs/resume", { id });
      studio.showMessage("Resuming where it stopped.");
    }, { class: state === "stopped" ? "primary" : null }),
    ...downloads.map((name) => make("a", { class: "compare-button", href: "/api/comparison/file?" + new URLSearchParams({ id, name }), download: "" }, FILES[name])),
    state !== "running" && makeAction("Delete", remove),
  ].filter(Boolean);
}
