// --- test examples on which the families disagree
const NUM_UNFOLDED = 3;  // examples
const TEXT_TASKS = new Set(["language", "masked"]);  // tasks that read one long text
const STREAM_TASKS = new Set([...TEXT_TASKS, "forecast"]);  // and a series: examples are pieces of it
const disagreements = report.examples ?? [];

// Right or wrong for shares, otherwise the value.
function makeJudgement(value, best, text) {
  if (!exists(value)) return make("span", { class: "judged" }, DASH);
  if (isRatio && value === 1) return make("span", { class: "judged right" }, "✓ right");
  if (isRatio && value === 0) return make("span", { class: "judged wrong" }, "✗ wrong");
  return make("span", { class: "judged" + (value === best ? " top" : "") }, text, value === best ? make("small", {}, "best here") : "");
}

function answersTable(example) {
  const own = families.filter((family) => Object.hasOwn(example.answers ?? {}, family.name));
  const values = own.map((family) => example.answers[family.name].value).filter(exists);
  const best = values.length > 1 && new Set(values).size > 1 ? (lower ? Math.min : Math.max)(...values) : null;
  const maximum = Math.max(...values.map(Math.abs), 1e-300);
  const texts = own.some((family) => example.answers[family.name].text);
  const rows = own.map((family) => {
    const { text, value, value_text } = example.answers[family.name];
    const correctness = isRatio && value === 1 ? "right" : isRatio && value === 0 ? "wrong" : "";
    return make("tr", { class: correctness }, rowHead(family.name),
      !texts && !isRatio && make("td", { class: "bars", "aria-hidden": "true" }, exists(value) ? makeBar(family.name, value / maximum) : ""),
      texts && make("td", { class: "text" }, make("div", { class: "passage", dir: "auto" }, text || DASH)),
      cell(family.name, "example", value, makeJudgement(value, best, value_text)));
  });
  const head = make("tr", {}, heading("Family"), texts && heading("Answer"), !texts && !isRatio && heading("bar", { "aria-hidden": "true" }), heading(isRatio ? "" : metric.name, { class: "number", "aria-label": metric.name }));
  return make("table", { class: "answers" + (texts ? "" : " bare") }, make("caption", { class: "unseen" }, "answers"), make("thead", { class: "unseen" }, head), make("tbody", {}, ...rows));
}

// Where line breaks are predicted too, they are marked.
const markLineBreaks = (text) => TEXT_TASKS.has(report.task) ? text.split("\n").flatMap((line, at) => at ? [make("span", { class: "break", "aria-hidden": "true" }, "↵"), "\n", line] : [line]) : [text];

const makeQuote = (name, text) => make("div", { class: "quoted" }, make("span", { class: "label" }, name),
  make("div", { class: "passage", dir: "auto", tabindex: text.length > 400 ? "0" : null }, ...markLineBreaks(text)));

function exampleCard(example, number) {
  const start = (example.input || example.expected || "").replace(/\s+/g, " ").trim();
  return make("details", { class: "example", open: number < NUM_UNFOLDED },
    make("summary", {}, make("span", { class: "quiet" }, `Example ${number + 1} `), make("bdi", { dir: "auto" }, shorten(start, 90))),
    example.input && makeQuote(TEXT_TASKS.has(report.task) ? "Passage" : "Input", example.input),
    example.expected && makeQuote("Expected", example.expected), answersTable(example));
}

function examples() {
  if (disagreements.length === 0)
    return part("examples", "Where they disagree", "None selected. --examples N selects the N on which the families differ most.");
  return part("examples", "Where they disagree",
    `The ${disagreements.length === 1 ? "test example" : disagreements.length + " test examples"} on which the families differ most${STREAM_TASKS.has(report.task) ? ", from all over the test split" : ""}. They show how the families differ, not how good they are.` +
      (single ? "" : " An answer is that of the first seed; the value beside it is the mean over all seeds."),
    ...disagreements.map(exampleCard));
}
