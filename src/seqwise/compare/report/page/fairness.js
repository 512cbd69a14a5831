// --- how it was made fair: the rules, the search for a learning rate, every trial
const TRIED = Math.max(0, ...families.map((family) => (family.tries ?? []).length));

function tryCell(family, one, place) {
  const key = `try-${place + 1}`;
  if (!one) return make("td", {}, NONE);
  const chosen = one.status === "done" && exists(family.learning_rate) && Math.abs(one.rate / family.learning_rate - 1) < 1e-9;
  const about = { "data-family": family.name, "data-key": key };
  const made = make("td", about, make("span", { class: "rate" }, one.shown.rate),
    one.status === "failed" ? make("span", { class: "wrong", title: one.reason }, "failed") : number(about, one.validation, one.shown.validation, "b"),
    chosen && make("small", {}, "✓ chosen"));
  if (chosen) made.classList.add("chosen");
  return made;
}

function search() {
  const some = families.filter((family) => (family.tries ?? []).length > 0);
  if (some.length === 0) return note("No learning rates were searched: each family used the rate of its rules.");
  const head = make("tr", {}, heading("Family"), ...Array.from({ length: TRIED }, (_, at) => heading(`Try ${at + 1}`, { class: "number" })));
  const rows = some.map((family) => make("tr", {}, rowHead(family.name),
    ...Array.from({ length: TRIED }, (_, at) => tryCell(family, family.tries[at], at))));
  return make("div", {}, make("h3", {}, "The search for a learning rate"),
    note(`Short trainings${rules.try ? " of " + rules.try : ""} with different rates; each field is the rate and the validation ${metric.name} it led to.`),
    table("learning rates tried", head, rows, { class: "tries" }));
}

function failures() {
  const failed = (report.trials ?? []).filter((trial) => trial.status === "failed");
  if (failed.length === 0) return null;
  const head = make("tr", {}, heading("Trial"), heading("Why it failed", { class: "words" }));
  const rows = failed.map((trial) => make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words", "data-failed": trial.name }, trial.reason || "No reason was given.")));
  return make("div", {}, make("h3", {}, "What failed"), table("failed trials", head, rows));
}

function everyTrial() {
  const trials = report.trials ?? [];
  if (trials.length === 0) return null;
  const names = ["Trial", "Status", "Seed", "Rate", "Updates", report.unit, "Time", "Validation"];
  const head = make("tr", {}, ...names.map((name, at) => heading(name, { class: at > 1 ? "number" : "words" })));
  const rows = trials.map((trial) => {
    const field = (key) => number({ "data-trial": trial.name, "data-key": key }, trial[key], trial.shown[key], "td");
    return make("tr", {}, make("th", { scope: "row" }, trial.name), make("td", { class: "words" }, trial.status), make("td", {}, String(trial.seed)),
      ...["rate", "updates", "tokens", "seconds", "validation"].map(field));
  });
  return folded(`Every trial (${trials.length})`, table("every trial", head, rows));
}

function fairness() {
  const said = [...(rules.sentences ?? [])];
  const about = [report.split, ...(report.about ?? [])].filter(Boolean);
  return part("fairness", "How it was made fair", null,
    said.length > 0 && make("ul", { class: "sentences" }, ...said.map((one) => make("li", {}, tight(one)))),
    about.length > 0 && make("div", {}, make("h3", {}, "The data"), make("ul", { class: "sentences" }, ...about.map((one) => make("li", {}, tight(one))))),
    search(), failures(), everyTrial());
}
