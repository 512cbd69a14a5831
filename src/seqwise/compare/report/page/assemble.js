// The whole page in one file, from top to bottom.
import { make } from "../../../page/components/elements.js";
import { drawCharts } from "../../../page/components/scales.js";
import { createReport } from "./report.js";
import { makeParts } from "./sections.js";
import { makeConditions, makeVerdict } from "./verdict.js";

const report = createReport(JSON.parse(document.getElementById("data").textContent));
document.getElementById("top").append(make("p", { class: "label" }, "Seqwise comparison"), make("h1", {}, report.title),
  makeVerdict(report), makeConditions(report));
const parts = makeParts(report), main = document.querySelector("main");
for (const { section } of parts) main.append(section);
document.getElementById("contents").append(make("div", { class: "page" }, ...parts.map(({ id, name }) => make("a", { href: "#" + id }, name))));
document.querySelector("footer").append(`Made by Seqwise ${report.seqwise ?? ""}. This file is complete in itself and loads nothing from elsewhere; its numbers are also in report.json.`);

drawCharts(document);

// On paper nothing can be unfolded.
let folds = [];
addEventListener("beforeprint", () => {
  folds = [...document.querySelectorAll("details:not([open])")];
  for (const fold of folds) fold.open = true;
});
addEventListener("afterprint", () => { for (const fold of folds) fold.open = false; });
