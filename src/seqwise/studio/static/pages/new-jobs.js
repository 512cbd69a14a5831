// Trainings and comparisons that were started from the page: their state, and buttons to stop and resume them.
import { make, makeCopyButton } from "../../../page/components/elements.js";
import { createActions, makeActionButton } from "../actions.js";
import { formatMetric, nameMetric } from "../metrics.js";
import { whenVisible } from "../rows.js";

const POLL_MILLISECONDS = 700, MAX_JOBS = 8;

// Returns { element, refresh(), update(rows), close() }.
export function makeJobs(studio) {
  const cards = new Map();  // run → card
  const list = make("div", { class: "new-jobs-list" });
  const element = make("section", { class: "new-jobs", "aria-label": "Started from this page", hidden: true }, make("h2", {}, "Started from this page"), list);
  let timer = 0, isClosed = false;

  async function refresh() {
    clearTimeout(timer);
    await whenVisible();
    const jobs = await studio.get("/api/jobs");
    if (isClosed) return;
    const newest = [...new Map(jobs.toReversed().map((job) => [job.run, job])).values()].sort((a, b) => b.started - a.started).slice(0, MAX_JOBS);
    for (const job of newest) {
      if (!cards.has(job.run)) cards.set(job.run, makeCard(studio, refresh));
      cards.get(job.run).show(job);
    }
    const elements = newest.map((job) => cards.get(job.run).element);
    if (elements.some((each, index) => list.children[index] !== each) || list.children.length !== elements.length) list.replaceChildren(...elements);
    element.hidden = !newest.length;
    // A run announces its own changes; a job that is about to create its run does not.
    if (newest.some((job) => isWaiting(job, studio.rows.get(job.run)))) timer = setTimeout(refresh, POLL_MILLISECONDS);
  }

  return {
    element, refresh,
    update: (rows) => { if (rows.some(({ id, parent }) => cards.has(id) || cards.has(parent))) refresh(); },
    close: () => { isClosed = true; clearTimeout(timer); },
  };
}

const isWaiting = (job, row) => job.state === "starting" || (job.state === "running") !== (row?.state === "running");

const isAlive = (job) => job.state === "starting" || job.state === "running";

function makeCard(studio, refresh) {
  const title = make("a", {}), state = make("span", { class: "state" }), details = make("p", { class: "hint" });
  const bar = make("progress", { max: 1, "aria-label": "Progress" }), error = make("div", {}), command = make("pre", {});
  let job = null;
  const changes = createActions(studio);
  const makeAction = (text, busyText, change, title = null) =>
    makeActionButton(text, busyText, async () => { await change(); await refresh(); }, { class: "small", title });
  const nameRun = (id) => [{ id, name: job.run }];
  // Before its folder exists, a run is known by its job only.
  const stop = makeAction("Stop", "Stopping …", () => changes.stop(nameRun(isAlive(job) ? job.id : job.run)));
  const resume = makeAction("Resume", "Resuming …", () => changes.resume(nameRun(job.run)));
  const forget = makeAction("×", "×", () => studio.send("/api/jobs/forget", { id: job.id }).catch(studio.showError), "remove it from this list; the run itself stays");
  const element = make("article", { class: "card new-job" },
    make("div", { class: "new-job-head" }, title, state, make("span", { class: "new-job-buttons" }, stop, resume, forget)), bar, details, error,
    make("details", {}, make("summary", {}, "Command"), make("div", { class: "command" }, command, makeCopyButton(command))));

  return {
    element,
    show(value) {
      job = value;
      const row = studio.rows.get(job.run), shown = findState(job, row);
      element.dataset.run = job.run;
      element.dataset.state = shown;
      title.textContent = job.run;
      if (row) title.href = studio.makeAddress(row.kind === "comparison" ? "compare" : "run", { id: row.id });
      else title.removeAttribute("href");
      state.className = `state is-${shown === "starting" ? "running" : shown}`;
      state.textContent = shown;
      stop.hidden = shown !== "starting" && shown !== "running";
      resume.hidden = !row || (shown !== "stopped" && shown !== "failed");
      forget.hidden = !stop.hidden;
      forget.setAttribute("aria-label", `Dismiss ${job.run}`);
      stop.setAttribute("aria-label", `Stop ${job.run}`);
      resume.setAttribute("aria-label", `Resume ${job.run}`);
      bar.hidden = stop.hidden;
      if (shown === "running" && row?.progress !== null && row?.progress !== undefined) bar.value = row.progress;
      else bar.removeAttribute("value");
      details.textContent = describe(shown, row, row?.kind === "comparison" ? studio.rows.list().filter(({ parent }) => parent === row.id) : []);
      const problem = shown === "failed" && (job.state === "failed" ? job : row?.problem ? row : null);
      error.replaceChildren(...problem ? [studio.makeError({ problem: problem.problem, fix: problem.fix ?? "" })] : []);
      command.textContent = job.command;
    },
  };
}

// The run knows best, unless its folder does not exist or the process has just started or failed.
function findState(job, row) {
  if (job.state === "starting" || job.state === "failed" || !row) return job.state;
  return row.state;
}

function describe(state, row, trials) {
  if (state === "starting") return "Reading the data …";
  if (!row || state === "failed") return "";
  const parts = trials.length ? [`${trials.filter((trial) => trial.state === "finished").length} of ${trials.length} trials so far finished`] : [];
  if (state === "running" && row.progress !== null) parts.push(`${Math.floor(100 * row.progress)} % of the budget`);
  if (row.step) parts.push(`step ${row.step.toLocaleString("en-GB")}`);
  if (row.value !== null) parts.push(`validation ${nameMetric(row.metric)} ${formatMetric(row.metric, row.value)}`);
  return parts.join(" · ");
}
