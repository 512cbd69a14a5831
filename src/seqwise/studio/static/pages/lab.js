// The lab: statements about sequence models by chapter. The reader guesses whether one is true, then runs the experiment.
import { make, makeButton } from "../../../page/components/elements.js";
import { formatDuration, formatPlural, trimZeros } from "../../../page/components/numbers.js";
import { createDrawingQueue } from "../../../lab/page/drawing-queue.js";
import { createGuesses } from "../../../lab/page/guesses.js";
import { makeIndex } from "../../../lab/page/index-links.js";
import { loadStyle } from "../styles.js";
import { makeExperiment } from "./lab-experiment.js";
import { createRunner } from "./lab-runner.js";

const LEAD = "Each statement comes from course notes on sequence models. Decide whether it is true, false, or depends on a condition; then run the experiment that tests it.";
let lab = null;  // what outlasts the page: the statements, the guesses, running experiments and their results

async function loadLab(studio) {
  if (lab) return lab;
  const { chapters, styles } = await studio.get("/api/lab"), statements = chapters.flatMap((chapter) => chapter.statements);
  const guesses = createGuesses(statements);
  const runner = createRunner(studio.call, (record) => { if (record.size !== "changed") guesses.setVerdict(record); });
  lab = { chapters, statements, styles, guesses, runner };
  return lab;
}

function describeScore(ids, guesses) {
  const made = guesses.countMade(ids), checked = guesses.countChecked(ids), open = made - checked;
  if (!made) return "No guess yet";
  const parts = [checked > 0 && `${guesses.countRight(ids)} of ${checked} ${checked === 1 ? "guess" : "guesses"} right`, open > 0 && `${open} to run`, `${ids.length - made} left`];
  return parts.filter(Boolean).join(", ");
}

function makeHead(ids, { guesses }, parameters, onSearch) {
  const score = make("p", { class: "lab-score", role: "status" });
  const forget = makeButton("Start again", () => guesses.clear(), { class: "small", "aria-label": "Forget my guesses" });
  const search = make("input", { type: "search", placeholder: "Find a statement", "aria-label": "Find a statement", value: parameters.get("search") ?? "", spellcheck: "false" });
  search.addEventListener("input", () => onSearch(search.value));
  const element = make("div", {}, make("h1", {}, "Lab"), make("p", { class: "lab-lead" }, LEAD), make("div", { class: "row lab-bar" }, score, forget, search));
  return { element, search, show() {
    score.textContent = describeScore(ids, guesses);
    forget.hidden = guesses.countMade(ids) === 0;
  } };
}

function makeContents(chapters, { guesses }, studio) {
  const links = chapters.map(({ letter, title, statements }) => {
    const small = make("small"), ids = statements.map(({ id }) => id);
    const link = make("a", { href: studio.makeAddress("lab", { chapter: letter }), title }, make("b", {}, letter), " ", make("span", {}, title), " ", small);
    return { link, letter, show(selected) {
      const checked = guesses.countChecked(ids);
      small.textContent = checked ? `${guesses.countRight(ids)} of ${checked} right` : formatPlural(statements.length, "statement");
      if (letter === selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    } };
  });
  return { element: make("nav", { class: "lab-contents", "aria-label": "Chapters" }, ...links.map(({ link }) => link)), show: (selected) => links.forEach((one) => one.show(selected)) };
}

// A button that runs all experiments of a chapter with the parameters of a quick run.
function makeChapterRun({ letter, statements }, { runner }) {
  const total = trimZeros(formatDuration(Math.ceil(statements.reduce((sum, { seconds }) => sum + seconds, 0))));
  const start = makeButton("", () => {
    for (const { id, quick } of statements) if (!runner.results.has(id) && !runner.isBusy(id)) runner.add(id, { is_quick: Object.keys(quick).length > 0, parameters: {} }, letter);
    stop.focus();
  });
  const stop = makeButton("Stop", () => { runner.cancelGroup(letter); start.focus(); }), bar = make("progress", { max: statements.length, "aria-label": `Chapter ${letter}` });
  const status = make("span", { role: "status", class: "lab-status" }), hint = make("span", { class: "hint" }, `at most about ${total}; verdicts stay hidden until you guess`);
  return { element: make("div", { class: "row lab-chapter-run" }, start, stop, bar, status, hint), show() {
    const jobs = runner.listJobs(letter), done = statements.filter(({ id }) => runner.results.has(id)).length, isRunning = jobs.length > 0;
    start.textContent = done ? `Run the other ${statements.length - done} (quick)` : `Run all ${statements.length} (quick)`;
    start.hidden = isRunning || done === statements.length;
    stop.hidden = bar.hidden = !isRunning;
    hint.hidden = isRunning || done > 0;
    bar.value = done;
    const now = jobs.find(({ stage }) => stage !== "waiting")?.id;
    status.textContent = done || isRunning ? `${done} of ${statements.length} run` + (now ? `, now ${now}` : "") : "";
  } };
}

const makeNote = () => make("p", { class: "hint lab-note" }, "Exercises, in which you write an equation as code, are for the terminal, since the studio runs no code that it is given: ",
  make("code", {}, "seqwise lab exercise"), " lists them, ", make("code", {}, "seqwise lab grade d7.py"), " checks one.");

export async function show(element, parameters, studio) {
  const [data] = await Promise.all([loadLab(studio), loadStyle("lab")]), { chapters, statements, guesses, runner, styles } = data;
  const ids = statements.map(({ id }) => id), queue = createDrawingQueue(), context = { studio, guesses, runner, queue, styles, scales: studio.scales };
  const experiments = new Map();  // by id
  const getExperiment = (statement) => {
    if (!experiments.has(statement.id)) experiments.set(statement.id, makeExperiment(statement, context));
    return experiments.get(statement.id);
  };
  let letter = "", parts = [], visible = [];
  const head = makeHead(ids, data, parameters, (text) => { keep(text); render(text); }), contents = makeContents(chapters, data, studio), place = make("div", { class: "lab-chapter" });
  const keep = (search) => studio.keep("lab", search ? { search } : { chapter: letter });
  element.append(head.element, make("div", { class: "lab-columns" }, contents.element, place), makeNote());

  function render(search) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const isFound = ({ id, claim, equation, measurement }) => words.every((word) => id.toLowerCase() === word || `${claim} ${equation} ${measurement}`.toLowerCase().includes(word));
    const chapter = chapters.find((one) => one.letter === letter), own = words.length ? statements.filter(isFound) : chapter.statements;
    const index = makeIndex(own, guesses, (id) => studio.makeAddress("lab", { id })), run = !words.length && makeChapterRun(chapter, data);
    parts = [index, run].filter(Boolean);
    visible = own.map(getExperiment);
    const title = words.length ? [formatPlural(own.length, "statement") + " found"] : [make("span", { class: "lab-letter" }, letter), " ", chapter.title];
    place.replaceChildren(make("h2", {}, ...title), ...run ? [run.element] : [], index.element, ...visible.map((one) => one.element));
    update();
  }
  function update() {
    head.show();
    contents.show(head.search.value.trim() ? "" : letter);
    for (const part of parts) part.show();
    for (const experiment of visible) experiment.update();
  }
  function change(next) {
    const id = (next.get("id") ?? "").toUpperCase(), wanted = next.get("chapter") ?? id[0] ?? letter;
    const last = letter;
    letter = chapters.some((one) => one.letter === wanted) ? wanted : letter || chapters[0].letter;
    head.search.value = next.get("search") ?? "";
    render(head.search.value);
    const target = ids.includes(id) && document.getElementById(id);
    if (target) target.scrollIntoView();
    else if (last && last !== letter && place.getBoundingClientRect().top < 0) place.scrollIntoView();
  }

  const unfollow = runner.follow(() => { if (element.isConnected) update(); });
  const unpin = (event) => { if (event.key === "Escape") for (const experiment of visible) experiment.unpin(); };
  const unfollowGuesses = guesses.follow(() => { if (element.isConnected) update(); });
  addEventListener("keydown", unpin);
  change(parameters);
  return { change, close() {
    unfollow();
    unfollowGuesses();
    removeEventListener("keydown", unpin);
    for (const experiment of experiments.values()) experiment.stop();
  } };
}
