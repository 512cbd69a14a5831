// The reader's guesses. They are stored in the browser where that is possible, separately for each file.
import { GUESSES, getAnswer } from "./verdicts.js";

const KEY = "seqwise-lab:" + location.pathname;
const KNOWN = GUESSES.map(([guess]) => guess);

function load(records) {
  let saved = null;
  try { saved = JSON.parse(localStorage.getItem(KEY)); } catch { /* no storage, or not ours: start without guesses */ }
  return new Map(records.filter(({ id }) => KNOWN.includes(saved?.[id])).map(({ id }) => [id, saved[id]]));
}

function save(guesses) {
  try { localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(guesses))); } catch { /* they last as long as the page is open */ }
}

export function createGuesses(records) {
  const guesses = load(records), answers = new Map(records.map((record) => [record.id, getAnswer(record)])), listeners = [];
  const change = () => { save(guesses); for (const listener of listeners) listener(); };
  const isRight = (id) => guesses.get(id) === answers.get(id);
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
