// The whole page, from top to bottom.
import { make } from "../../../page/components/elements.js";
import { redrawCharts } from "./charts.js";
import { addCosts } from "./costs.js";
import { addCurves } from "./curves.js";
import { addExamples } from "./examples.js";
import { addFairness } from "./fairness.js";
import { addLeaderboard } from "./leaderboard.js";
import { addPairs } from "./pairs.js";
import { parts } from "./parts.js";
import { report } from "./report.js";
import { addSettings } from "./settings.js";
import { addTradeoff } from "./tradeoff.js";
import { addPageHeader } from "./verdict.js";

addPageHeader();
addLeaderboard(); addCurves(); addTradeoff(); addCosts(); addPairs(); addExamples(); addFairness(); addSettings();
const main = document.querySelector("main");
for (const { section } of parts) main.append(section);
document.getElementById("contents").append(make("div", { class: "page" }, ...parts.map(({ id, name }) => make("a", { href: "#" + id }, name))));
document.querySelector("footer").append(`Made by Seqwise ${report.seqwise ?? ""}. This file is complete in itself and loads nothing from elsewhere; its numbers are also in report.json.`);

redrawCharts();

// On paper nothing can be unfolded.
let folds = [];
addEventListener("beforeprint", () => {
  folds = [...document.querySelectorAll("details:not([open])")];
  for (const fold of folds) fold.open = true;
});
addEventListener("afterprint", () => { for (const fold of folds) fold.open = false; });
