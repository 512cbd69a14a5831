// Sentences about a model, the most severe first, each with its evidence and a command to try.
import { make, makeCopyButton } from "./elements.js";
import { keepUnitsTogether } from "./numbers.js";

const SEVERITIES = { problem: ["✕", "Problem"], warning: ["!", "Warning"], note: ["i", "Note"], good: ["✓", "Good"] };

function drawFinding({ severity, text, evidence, command }) {
  const [sign, name] = SEVERITIES[severity], code = make("pre", {}, make("code", {}, command));
  return make("li", { class: "finding " + severity },
    make("span", { class: "severity" }, make("b", { "aria-hidden": "true" }, sign), name),
    make("div", {},
      make("p", { class: "finding-text" }, keepUnitsTogether(text)),
      evidence && make("p", { class: "evidence" }, keepUnitsTogether(evidence)),
      command && make("div", { class: "command" }, code, makeCopyButton(code))));
}

export const drawFindings = ({ findings }) => make("ol", { class: "findings", "data-chart": "findings" }, ...findings.map(drawFinding));
