// --- the head of the page: what was compared, the best family, and the conditions
const verdict = report.verdict ?? {}, rules = report.rules ?? {}, seeds = rules.seeds ?? [];
const single = seeds.length === 1;
const byName = new Map(families.map((family) => [family.name, family]));

function winner() {
  const best = byName.get(verdict.best);
  if (!best) return [make("p", { class: "label" }, "Result"), make("p", { class: "winner none" }, "No family finished")];
  const tied = verdict.tied ?? [], unsure = verdict.unsure ?? [];
  const headline = finished.length === 1 ? "Only one finished" : tied.length ? "Ahead by little" : unsure.length ? "Ahead, but not certainly" : "Best";
  return [
    make("p", { class: "label" }, headline),
    make("p", { class: "winner" + (best.name.length > 26 ? " longest" : best.name.length > 9 ? " long" : "") }, winnerMark(best.name), make("bdi", {}, best.name)),
    make("p", { class: "score" }, metric.name + " ", make("b", {}, best.text.mean)),
    tied.length > 0 && make("p", { class: "equals" }, "tied: ", ...joinElements(tied)),
    unsure.length > 0 && make("p", { class: "equals" }, "behind, but not certainly: ", ...joinElements(unsure)),
  ].filter(Boolean);
}

const winnerMark = (name) => draw("svg", { class: "crest", viewBox: "0 0 24 24", "aria-hidden": "true" }, mark(name, 12, 12, 8.5));
const joinElements = (names) => names.flatMap((name, at) => [at ? ", " : "", make("bdi", {}, name)]);

// The fastest and the smallest of several leaders.
function distinctions() {
  const kinds = [["fastest", "Fastest predictions among the best"], ["smallest", "Smallest among the best"]];
  return kinds.filter(([key]) => byName.has(verdict[key]) && (verdict.tied ?? []).length > 0).map(([key, text]) => {
    const family = byName.get(verdict[key]);
    const size = verdict[key + "_text"] + (key === "fastest" ? " each" : "");
    return make("div", {}, make("dt", {}, text), make("dd", {}, familyLabel(family.name), " ", make("small", {}, size)));
  });
}

function conditions() {
  const names = families.length === 1 ? "1 family" : families.length + " families";
  const matchNames = { parameters: "equal parameters", time: "equal time", tokens: "equal " + (report.unit ?? "tokens") };
  const rows = [
    ["Budget", (rules.budget ?? DASH) + " for each family and seed"],
    ["Compared", names + ", " + plural(seeds.length, "seed")],
    ["Matched by", (matchNames[rules.match] ?? rules.match ?? DASH) + (rules.match === "parameters" && exists(rules.parameters) ? " (" + rules.parameters_text + ")" : "")],
    ["Machine", report.machine?.in_words ?? DASH],
  ];
  return make("dl", { class: "facts" }, ...rows.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
}

function pageHeader() {
  const fastestAndSmallest = distinctions();
  find("top").append(
    make("p", { class: "label" }, "Seqwise comparison"),
    make("h1", {}, title),
    make("div", { class: "verdict" },
      make("div", { class: "winner-box" }, ...winner()),
      make("div", { class: "sentences-box" }, ...(verdict.sentences ?? []).map((sentence) => make("p", {}, keepUnitsTogether(sentence))),
        fastestAndSmallest.length > 0 && make("dl", { class: "prizes" }, ...fastestAndSmallest))),
    conditions());
}
