// The reader's guesses, separately for each file. They are stored in the browser; where it stores nothing for a file, they are part
// of the history of the tab, which lasts when the page is loaded again.
import { GUESSES, getAnswer } from "./verdicts.js";

const KEY = "seqwise-lab:" + location.pathname;
const KNOWN = GUESSES.map(([guess]) => guess);

function readStorage() {
  try { return JSON.parse(localStorage.getItem(KEY)); } catch { return null; }  // no storage, or not ours
}

function load(records) {
  const saved = readStorage() ?? history.state?.[KEY];
  return new Map(records.filter(({ id }) => KNOWN.includes(saved?.[id])).map(({ id }) => [id, saved[id]]));
}

function saveInHistory(guesses) {
  try { history.replaceState({ [KEY]: Object.fromEntries(guesses) }, ""); } catch { /* they last as long as the page is open */ }
}

function save(guesses) {
  try { localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(guesses))); } catch { /* the history has them */ }
  saveInHistory(guesses);
}

export function createGuesses(records) {
  const guesses = load(records), answers = new Map(records.map((record) => [record.id, getAnswer(record)])), listeners = [];
  const change = () => { save(guesses); for (const listener of listeners) listener(); };
  const isRight = (id) => guesses.get(id) === answers.get(id);
  addEventListener("hashchange", () => saveInHistory(guesses));  // a link within the page begins a new entry of the history
  return {
    get: (id) => guesses.get(id) ?? null,
    set(id, guess) { guesses.set(id, guess); change(); },
    clear() { guesses.clear(); change(); },
    isRight,
    countMade: (ids) => ids.filter((id) => guesses.has(id)).length,
    countRight: (ids) => ids.filter(isRight).length,
    follow: (listener) => listeners.push(listener),
  };
}
