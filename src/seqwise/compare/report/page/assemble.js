// --- the whole page, from top to bottom
addPageHeader();
addLeaderboard(); addCurves(); addTradeoff(); addCosts(); addPairs(); addExamples(); addFairness(); addSettings();
const main = document.querySelector("main");
for (const { section } of parts) main.append(section);
getElement("contents").append(make("div", { class: "page" }, ...parts.map(({ id, name }) => make("a", { href: "#" + id }, name))));
document.querySelector("footer").append(`Made by Seqwise ${report.seqwise ?? ""}. This file is complete in itself and loads nothing from elsewhere; its numbers are also in report.json.`);

for (const redraw of redrawFunctions) redraw();

// On paper nothing can be unfolded.
let folds = [];
addEventListener("beforeprint", () => {
  folds = [...document.querySelectorAll("details:not([open])")];
  for (const fold of folds) fold.open = true;
});
addEventListener("afterprint", () => { for (const fold of folds) fold.open = false; });
