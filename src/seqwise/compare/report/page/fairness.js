// --- how it was made fair: the rules, the learning-rate search, every trial
const NUM_RATES = Math.max(0, ...families.map((family) => (family.lr_trials ?? []).length));

function rateCell(family, trial, index) {
  const key = `lr-${index + 1}`;
  if (!trial) return make("td", {}, DASH);
  const chosen = trial.status === "done" && exists(family.learning_rate) && Math.abs(trial.rate / family.learning_rate - 1) < 1e-9;
  const about = { "data-family": family.name, "data-key": key };
  const field = make("td", about, make("span", { class: "rate" }, trial.rate_text),
    trial.status === "failed" ? make("span", { class: "wrong", title: trial.reason }, "failed") : number(about, trial.validation, trial.validation_text, "b"),
    chosen && make("small", {}, "✓ chosen"));
  if (chosen) field.classList.add("chosen");
  return field;
}

// The validation metric against the learning rate: a line per family, a ring around the rate that was chosen.
function rateChart(some) {
  const getTrials = (family) => family.lr_trials.filter((trial) => exists(trial.rate) && exists(trial.validation)).sort((a, b) => a.rate - b.rate);
  const searched = some.filter((family) => getTrials(family).length > 1);
  if (searched.length === 0) return null;
  const drawing = chart("rates", `Learning-rate search: validation ${metric.name} of ${joinNames(searched.map((family) => family.name))} against the learning rate`, 300, (svg, width, height) => {
    const lines = searched.filter((family) => !hidden.has(family.name)), trials = lines.flatMap(getTrials);
    const area = { left: 58, right: width - 14, top: 34, bottom: height - 46 };
    const values = trials.map((trial) => trial.validation), [minimum, maximum] = extent(values);
    const log = allowsLog && minimum > 0 && maximum / minimum > 3;
    const x = scale(addMargins(trials.map((trial) => trial.rate), true, 0.04), area.left, area.right, true);
    const y = scale(addMargins(values, log), area.bottom, area.top, log);
    svg.append(frame(area, x, y, { x: "learning rate", y: "validation " + qualityName }, { x: tickLabels, y: qualityTicks }));
    for (const family of lines) {
      const points = getTrials(family).map((trial) => [trial.rate, trial.validation]);
      svg.append(draw("path", { class: "mark line", d: path(points, x, y), style: `stroke: ${colour(family.name)}`, "stroke-dasharray": dash(family.name), "data-family": family.name }),
        ...points.map(([rate, value]) => mark(family.name, x(rate), y(value), 4)));
      for (const [rate, value] of points.filter(([rate]) => exists(family.learning_rate) && Math.abs(rate / family.learning_rate - 1) < 1e-9))
        svg.append(draw("circle", { class: "chosen", cx: x(rate), cy: y(value), r: 8 }));
    }
  });
  redrawFunctions.push(drawing.redraw);
  return make("figure", {}, make("figcaption", {}, "Validation against learning rate", make("small", {}, "A ring marks the rate that was chosen.")),
    legend(searched.map((family) => family.name)), drawing.box);
}

function learningRates() {
  const some = families.filter((family) => (family.lr_trials ?? []).length > 0);
  if (some.length === 0) return note("There was no learning-rate search: each family used its default rate.");
  const head = make("tr", {}, heading("Family"), ...Array.from({ length: NUM_RATES }, (_, at) => heading(`Rate ${at + 1}`, { class: "number" })));
  const rows = some.map((family) => make("tr", {}, rowHead(family.name),
    ...Array.from({ length: NUM_RATES }, (_, at) => rateCell(family, family.lr_trials[at], at))));
  return make("div", {}, make("h3", {}, "Learning-rate search"), rateChart(some),
    note(`Short training runs${rules.lr_trial_budget ? " of " + rules.lr_trial_budget : ""} with different learning rates; each field is the rate and its validation ${metric.name}.`),
    table("learning-rate search", head, rows, { class: "rates" }));
}

function failures() {
  const failed = (report.trials ?? []).filter((trial) => trial.status === "failed");
  if (failed.length === 0) return null;
  const head = make("tr", {}, heading("Trial"), heading("Why it failed", { class: "words" }));
  const rows = failed.map((trial) => make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words", "data-failed": trial.name }, trial.reason || "No reason was given.")));
  return make("div", {}, make("h3", {}, "What failed"), table("failed trials", head, rows));
}

function trialTable() {
  const trials = report.trials ?? [];
  if (trials.length === 0) return null;
  const names = ["Trial", "Status", "Seed", "Rate", "Updates", report.unit, "Time", "Validation"];
  const head = make("tr", {}, ...names.map((name, at) => heading(name, { class: at > 1 ? "number" : "words" })));
  const rows = trials.map((trial) => {
    const field = (key) => number({ "data-trial": trial.name, "data-key": key }, trial[key], trial.text[key], "td");
    return make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words" }, trial.status), make("td", {}, String(trial.seed)),
      ...["rate", "updates", "tokens", "seconds", "validation"].map(field));
  });
  return foldable(`Every trial (${trials.length})`, table("every trial", head, rows));
}

function fairness() {
  const sentences = rules.sentences ?? [];
  const about = [report.split_rule, ...(report.about ?? [])].filter(Boolean);
  return part("fairness", "How it was made fair", null,
    sentences.length > 0 && make("ul", { class: "sentences" }, ...sentences.map((one) => make("li", {}, keepUnitsTogether(one)))),
    about.length > 0 && make("div", {}, make("h3", {}, "The data"), make("ul", { class: "sentences" }, ...about.map((one) => make("li", {}, keepUnitsTogether(one))))),
    learningRates(), failures(), trialTable());
}
