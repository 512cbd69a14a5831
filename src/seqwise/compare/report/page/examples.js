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

// The actual values of a series and each family's forecast of them, after the values before.
function forecastChart(example) {
  const own = families.filter((family) => (example.answers?.[family.name]?.values ?? []).length > 0);
  const past = example.history ?? [], actual = example.actual ?? [];
  if (own.length === 0 || actual.length === 0) return null;
  const number = (values, start) => values.map((value, at) => [start + at, value]).filter(([, value]) => exists(value));
  const before = number(past, -past.length), truth = number(actual, 0);
  const lines = own.map((family) => [family.name, number(example.answers[family.name].values, 0)]);
  const drawing = chart("forecast", `The actual values and the forecasts of ${joinNames(own.map((family) => family.name))}`, 260, (svg, width, height) => {
    const points = [before, truth, ...lines.map(([, line]) => line)].flat();
    const area = { left: 58, right: width - 12, top: 34, bottom: height - 46 };
    const x = scale(points.map((point) => point[0]), area.left, area.right), y = scale(addMargins(points.map((point) => point[1]), false), area.bottom, area.top);
    svg.append(frame(area, x, y, { x: "steps from the start of the forecast", y: "value" }, { x: tickLabels, y: tickLabels }),
      draw("line", { class: "cursor", x1: x(0), x2: x(0), y1: area.top, y2: area.bottom }),
      draw("path", { class: "mark actual", d: path([...before, ...truth], x, y) }),
      ...lines.map(([name, line]) => draw("path", { class: "mark line", d: path(line, x, y), style: `stroke: ${colour(name)}`, "stroke-dasharray": dash(name), "data-family": name })));
  });
  const actualLabel = make("span", { class: "family" }, draw("svg", { class: "chip", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
    draw("line", { x1: 1, y1: 6, x2: 25, y2: 6, style: "stroke: var(--ink)", "stroke-width": 2 })), "actual");
  return make("div", {}, make("div", { class: "legend" }, actualLabel, ...own.map((family) => familyLabel(family.name))), drawing.box);
}

function exampleCard(example, number) {
  const start = (example.input || example.expected || "").replace(/\s+/g, " ").trim();
  return make("details", { class: "example", open: number < NUM_UNFOLDED },
    make("summary", {}, make("span", { class: "quiet" }, `Example ${number + 1} `), make("bdi", { dir: "auto" }, shorten(start, 90))),
    forecastChart(example),
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
