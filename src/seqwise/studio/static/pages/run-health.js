// What is wrong with a run, with evidence and a command to try: by its curve at once, by its data and model on request.
import { make, makeButton } from "../../../page/components/elements.js";
import { drawFigures } from "../../../page/components/figure-list.js";
import { createPins } from "../../../page/components/pins.js";

export function createHealth(initial, { studio, id }) {
  const status = make("p", { class: "hint", role: "status" }), grid = make("div"), sentence = make("p", { class: "run-sentence" });
  const button = makeButton("Check the data and the model too", () => check(false), { class: "primary" }), cancel = makeButton("Cancel", () => controller?.abort(), { hidden: true });
  const element = make("div", {}, sentence, make("div", { class: "row run-controls" }, button, cancel, status), grid);
  let controller = null, isFull = false, checkedStep = null, run = initial;

  const check = async (quick) => {
    controller?.abort();
    const own = controller = new AbortController();
    status.textContent = quick ? "Checking the curve …" : "Reading the data …";
    button.disabled = true;
    cancel.hidden = quick;
    checkedStep = run.step;
    try {
      const onEvent = ({ progress }) => { if (progress && !quick) status.textContent = `Check ${progress[0]} of ${progress[1]} …`; };
      const { summary, figures } = await studio.call("check_health", { run: id, quick }, { onEvent, signal: own.signal });
      isFull = !quick;
      sentence.textContent = summary;
      drawFigures(grid, figures, { scales: studio.scales, pins: createPins() });
      status.textContent = quick ? "The curve was checked. More checks read the data and the model, which takes longer." : "Everything was checked.";
    } catch (error) {
      if (own !== controller) return;
      status.textContent = error.name === "AbortError" ? "Cancelled." : "";
      if (error.name !== "AbortError") grid.replaceChildren(studio.makeError(error));
    } finally {
      if (own === controller) {
        button.disabled = false;
        cancel.hidden = true;
      }
    }
  };
  check(true);
  return {
    element,
    // While the run trains, the curve is checked again as it grows; the result of a full check stays.
    update(next) {
      run = next;
      const hasGrown = checkedStep === null || next.step >= 1.2 * checkedStep || next.state !== "running" && next.step !== checkedStep;
      if (element.isConnected && !isFull && !button.disabled && hasGrown) check(true);
    },
  };
}
