// A statement of the lab that is run from the page: first the guess, then the run, then the verdict.
import { make, makeButton } from "../../../page/components/elements.js";
import { formatDuration, trimZeros } from "../../../page/components/numbers.js";
import { makeAnswer } from "../../../lab/page/answers.js";
import { makeFeedback, makeQuestion, makeSection } from "../../../lab/page/statements.js";
import { makeParameters } from "./lab-parameters.js";

const TICK = 200;  // milliseconds between two updates of the elapsed time
const STAGES = { waiting: "Waiting", loading: "Starting", running: "Running" };

// `context` has the studio, the runner, the guesses, the figures' scales and styles, and the queue that draws figures.
export function makeExperiment(statement, context) {
  const { studio, runner, guesses, queue } = context, { id } = statement;
  let isSkipped = false, answer = null, shown = null, timer = 0;  // `shown` is the record of the answer

  const question = makeQuestion(statement, (guess) => {
    guesses.set(id, guess);
    (runner.results.has(id) ? answer.element : runButton).focus({ preventScroll: true });  // the button is gone
  }, makeButton("Run without a guess", () => { isSkipped = true; update(); runButton.focus({ preventScroll: true }); }, { class: "lab-skip" }));
  const ready = make("p", { class: "hint lab-ready" }, "The experiment has been run: the verdict appears after your guess.");
  const expected = make("span", { class: "hint" }), time = trimZeros(formatDuration(statement.seconds));
  const parameters = makeParameters(statement, (isQuick) => { expected.textContent = isQuick ? `at most about ${time}` : `about ${time} on two cores`; });
  const runButton = makeButton("Run", () => runner.add(id, parameters.getValues()), { class: "primary", "aria-label": `Run ${id}` });
  const cancelButton = makeButton("Cancel", () => { runner.cancel(id); runButton.focus({ preventScroll: true }); }, { "aria-label": `Cancel ${id}` });
  const status = make("span", { role: "status", class: "lab-status" }), elapsed = make("span", { class: "lab-elapsed" });
  const bar = make("progress", { "aria-label": `${id} is running` });
  const busy = make("div", { class: "row lab-busy", hidden: true }, bar, status, elapsed, cancelButton);
  const problem = make("div", { class: "lab-problem" });
  const idle = make("div", { class: "row" }, runButton, parameters.size, expected);
  const panel = make("div", { class: "lab-panel", role: "group", "aria-label": `Run of ${id}` }, idle, busy, problem, parameters.details);
  const place = make("div", { class: "answer-place" });
  const element = makeSection(statement, studio.makeAddress("lab", { id }), question, ready, panel, place);

  const showTime = () => {
    const job = runner.getJob(id);
    elapsed.textContent = job && job.stage !== "waiting" ? trimZeros(formatDuration(Math.round((performance.now() - job.started) / 100) / 10)) : "";
  };

  function updateJob() {
    const job = runner.getJob(id), isBusy = runner.isBusy(id);
    idle.hidden = isBusy;
    busy.hidden = !isBusy;
    problem.replaceChildren(...job?.error ? [studio.makeError(job.error)] : []);
    const text = isBusy ? STAGES[job.stage] + " …" : "";
    if (status.textContent !== text) status.textContent = text;
    clearInterval(timer);
    showTime();
    if (isBusy && element.isConnected) timer = setInterval(() => { if (!element.isConnected) clearInterval(timer); showTime(); }, TICK);
  }

  function updateAnswer(isOpen) {
    const record = isOpen ? runner.results.get(id) ?? null : null;
    if (record !== shown) {
      shown = record;
      answer = record && makeAnswer(record, context);
      place.replaceChildren(...answer ? [make("p"), answer.element] : []);
      if (answer) queue.watch(place, answer.drawFigures);
    }
    if (!answer) return;
    const isUsual = record.size !== "changed" || !guesses.get(id);
    place.firstChild.replaceWith(isUsual ? makeFeedback(record, guesses.get(id)) :
      make("p", { class: "feedback" }, "With these parameters; your guess is compared with a run with the usual ones."));
  }

  function update() {
    const isOpen = isSkipped || guesses.get(id) !== null, wasBusy = !busy.hidden;
    const hadFocus = idle.contains(document.activeElement) || busy.contains(document.activeElement);
    question.hidden = isOpen;
    ready.hidden = isOpen || !runner.results.has(id);
    panel.hidden = !isOpen && !runner.isBusy(id);
    parameters.details.hidden = !isOpen;
    runButton.textContent = runner.results.has(id) ? "Run again" : "Run";
    updateJob();
    updateAnswer(isOpen);
    const isBusy = !busy.hidden;
    if (hadFocus && wasBusy !== isBusy) (isBusy ? cancelButton : answer?.element ?? runButton).focus({ preventScroll: true });
  }
  return { statement, element, update, unpin: () => answer?.unpin(), stop: () => clearInterval(timer) };
}
