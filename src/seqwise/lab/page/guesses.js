// The reader's guesses, separately for each file. They are stored in the browser; where it stores nothing for a file, they are part
// of the history of the tab, which lasts when the page is loaded again.
import { GUESSES, getAnswer } from "./verdicts.js";

const KEY = "seqwise-lab:" + location.pathname, ANSWERS_KEY = "seqwise-lab-answers:" + location.pathname;
const KNOWN = GUESSES.map(([guess]) => guess);

function readStorage(key) {
  try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }  // no storage, or not ours
}

function load(records, saved) {
  return new Map(records.filter(({ id }) => KNOWN.includes(saved?.[id])).map(({ id }) => [id, saved[id]]));
}

function saveInHistory(guesses) {
  try { history.replaceState({ [KEY]: Object.fromEntries(guesses) }, ""); } catch { /* they last as long as the page is open */ }
}

function save(key, values) {
  try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(values))); } catch { /* the history has the guesses */ }
}

// Records without a verdict are those of experiments that were not run yet: `setVerdict` is called when they are. Only then
// answers are stored too.
export function createGuesses(records) {
  const guesses = load(records, readStorage(KEY) ?? history.state?.[KEY]), listeners = new Set();
  const answers = load(records, readStorage(ANSWERS_KEY));
  for (const record of records) if (record.verdict) answers.set(record.id, getAnswer(record));
  const change = () => { save(KEY, guesses); saveInHistory(guesses); for (const listener of listeners) listener(); };
  const isRight = (id) => guesses.has(id) && guesses.get(id) === answers.get(id);
  addEventListener("hashchange", () => saveInHistory(guesses));  // a link within the page begins a new entry of the history
  return {
    get: (id) => guesses.get(id) ?? null,
    set(id, guess) { guesses.set(id, guess); change(); },
    setVerdict(record) { answers.set(record.id, getAnswer(record)); save(ANSWERS_KEY, answers); change(); },
    clear() { guesses.clear(); change(); },
    isRight,
    hasAnswer: (id) => answers.has(id),
    countMade: (ids) => ids.filter((id) => guesses.has(id)).length,
    countChecked: (ids) => ids.filter((id) => guesses.has(id) && answers.has(id)).length,
    countRight: (ids) => ids.filter(isRight).length,
    follow(listener) { listeners.add(listener); return () => listeners.delete(listener); },
  };
}
