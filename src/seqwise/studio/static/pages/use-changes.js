// "What changed": an input and its answer beside those before an edit, with the differences marked.
import { make, makeButton } from "../../../page/components/elements.js";
import { formatFixed } from "../../../page/components/numbers.js";
import { formatShare } from "./use-parts.js";

const MAX_CELLS = 1_000_000, MAX_ROWS = 12;
const splitWords = (text) => text.match(/\s+|\S+?(?=[.,;:!?]*(?:\s|$))|[.,;:!?]+/g) ?? [];

// Spaces between two changed words count as changed too.
function joinParts(parts) {
  const joined = [];
  parts.forEach(([text, isChanged], at) => {
    const isSpace = Boolean(!isChanged && text.trim() === "" && parts[at - 1]?.[1] && parts[at + 1]?.[1]);
    if (joined.length && joined.at(-1)[1] === (isChanged || isSpace)) joined.at(-1)[0] += text;
    else joined.push([text, isChanged || isSpace]);
  });
  return joined;
}

// Returns the parts of both texts as [text, isChanged]: the longest common subsequence of words is unchanged.
export function compareTexts(before, now) {
  const a = splitWords(before), b = splitWords(now), parts = [[], []];
  const add = (side, text, isChanged) => {
    const last = parts[side].at(-1);
    if (last && last[1] === isChanged) last[0] += text;
    else parts[side].push([text, isChanged]);
  };
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  for (const side of [0, 1]) add(side, a.slice(0, start).join(""), false);
  const middleA = a.slice(start, endA), middleB = b.slice(start, endB), width = middleB.length + 1;
  if ((middleA.length + 1) * width > MAX_CELLS) {
    add(0, middleA.join(""), true);
    add(1, middleB.join(""), true);
  } else {
    const lengths = new Uint16Array((middleA.length + 1) * width);
    for (let i = middleA.length - 1; i >= 0; i--)
      for (let j = middleB.length - 1; j >= 0; j--)
        lengths[i * width + j] = middleA[i] === middleB[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    let i = 0, j = 0;
    while (i < middleA.length || j < middleB.length) {
      if (i < middleA.length && j < middleB.length && middleA[i] === middleB[j]) { add(0, middleA[i++], false); add(1, middleB[j++], false); }
      else if (j >= middleB.length || i < middleA.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) add(0, middleA[i++], true);
      else add(1, middleB[j++], true);
    }
  }
  for (const side of [0, 1]) add(side, a.slice(endA).join(""), false);
  return parts.map((side) => joinParts(side.filter(([text]) => text)));
}

const makeParts = (parts, tag) => make("p", { class: "use-diff", dir: "auto" }, ...parts.map(([text, isChanged]) => isChanged ? make(tag, {}, text) : text));

function makeRows(before, now) {
  const values = new Map(before.map(({ name, value }) => [name, { before: value, now: null }]));
  for (const { name, value } of now) values.set(name, { before: values.get(name)?.before ?? null, now: value });
  const rows = [...values].map(([name, row]) => ({ name, ...row, change: (row.now ?? 0) - (row.before ?? 0) }))
    .sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, MAX_ROWS);
  const format = (value) => value === null ? "–" : formatShare(value);
  const formatChange = (change) => (change > 0 ? "+" : "") + formatFixed(100 * change, 1) + " pp";
  return make("div", { class: "scroller" }, make("table", { class: "use-table" },
    make("caption", { class: "unseen" }, "Probabilities before and now"),
    make("thead", {}, make("tr", {}, ...["", "before", "now", "change"].map((name, at) => make(at ? "th" : "td", at ? { scope: "col" } : {}, name)))),
    make("tbody", {}, ...rows.map(({ name, before: first, now: last, change }) => make("tr", {},
      make("th", { scope: "row", class: "words" }, make("bdi", {}, name)), make("td", {}, format(first)), make("td", {}, format(last)),
      make("td", { class: Math.abs(change) < 0.0005 ? "" : change > 0 ? "use-more" : "use-less" }, formatChange(change)))))));
}

// `update(entry, isNew)` shows how an entry differs from the one with which it is compared: the last that was new. An
// entry is { input, answer, rows: [{ name, value }] }; names say what input and answer are.
export function createChanges(names = { input: "input", answer: "answer" }) {
  const element = make("section", { class: "card use-card use-changes", "aria-label": "What changed", hidden: true });
  let baseline = null, current = null;
  const reset = () => { baseline = current; element.hidden = true; };
  const draw = () => {
    const [oldInput, newInput] = compareTexts(baseline.input, current.input), [oldAnswer, newAnswer] = compareTexts(baseline.answer, current.answer);
    const makeSide = (title, input, answer, tag) => make("div", {}, make("h3", {}, title),
      make("p", { class: "label" }, names.input), makeParts(input, tag),
      ...baseline.answer || current.answer ? [make("p", { class: "label" }, names.answer), makeParts(answer, tag)] : []);
    element.replaceChildren(
      make("div", { class: "use-head" }, make("h2", {}, "What changed"),
        makeButton("Compare with this from now on", reset, { class: "small" })),
      make("div", { class: "use-sides" }, makeSide("Before", oldInput, oldAnswer, "del"), makeSide("Now", newInput, newAnswer, "ins")),
      ...current.rows?.length ? [makeRows(baseline.rows ?? [], current.rows)] : []);
  };
  return {
    element, reset,
    getBaseline: () => baseline,
    update(entry, isNew = false) {
      current = entry;
      if (isNew || !baseline) baseline = entry;
      element.hidden = JSON.stringify(baseline) === JSON.stringify(current);
      if (!element.hidden) draw();
    },
  };
}
