// Nearest words, analogies and similarities. Words that have no vector get suggestions.
import { make, makeButton, makeChoice, makeId } from "../../../page/components/elements.js";
import { formatFixed, formatWhole } from "../../../page/components/numbers.js";

const MAX_TRAIL = 12;  // words of the history that are shown

export function makeWordInput(label, listId, value = "") {
  const id = makeId("word");
  const input = make("input", { id, type: "text", list: listId, value, maxlength: 200, autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  return { input, element: make("div", { class: "vectors-input" }, make("label", { for: id }, label), input) };
}

const makeWord = (word, onClick) => makeButton(make("bdi", {}, word), () => onClick(word), { class: "vectors-word", title: "nearest words" });

// A list of words with their cosines.
function makeTable(caption, rows, onWord) {
  const hasCounts = rows.some(({ count }) => count !== null);
  const makeRow = ({ word, cosine, count }, at) => {
    const bar = make("i", { class: "vectors-share", "aria-hidden": "true" });
    bar.style.width = 100 * Math.max(0, Math.min(1, cosine)) + "%";
    return make("tr", {}, make("td", { class: "vectors-rank" }, String(at + 1)), make("th", { scope: "row", class: "words" }, makeWord(word, onWord)),
      make("td", { class: "vectors-cosine" }, bar, make("span", {}, formatFixed(cosine, 3))), hasCounts && make("td", {}, count === null ? "" : formatWhole(count)));
  };
  return make("div", { class: "scroller vectors-table" }, make("table", {}, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "unseen" }, "rank")), make("th", { scope: "col", class: "words" }, "word"), make("th", { scope: "col" }, "cosine"), hasCounts && make("th", { scope: "col" }, "count"))),
    make("tbody", {}, ...rows.map(makeRow))));
}

// Of each unknown word what could be meant; `onChoose(word, suggestion)`.
export function makeUnknown(unknown, onChoose) {
  return make("div", { class: "vectors-unknown", role: "alert" }, ...unknown.map(({ word, suggestions }) => make("p", {}, "There is no vector of ", make("b", {}, make("bdi", {}, word)),
    suggestions.length ? ". Perhaps " : ".", ...suggestions.flatMap((each, at) => [at ? " " : "", makeButton(make("bdi", {}, each), () => onChoose(word, each), { class: "small" })]), suggestions.length ? "?" : "")));
}

// A form with words, whose answer is shown below. `ask(words)` returns what the server says, `draw(answer)` elements; `onSubmit(words)`
// is what the button does instead of asking.
function makeForm({ title, inputs, button, ask, draw, onSubmit = null, extra = null }, studio) {
  const place = make("div", { class: "vectors-answer" }), titleId = makeId("vectors");
  const form = make("form", { class: "vectors-form" }, ...inputs.map(({ element }) => element), make("button", { class: "primary" }, button));
  let number = 0;
  async function submit(words) {
    inputs.forEach(({ input }, at) => { input.value = words[at]; });
    const own = ++number, replaceWord = (word, other) => (onSubmit ?? submit)(words.map((each) => each === word ? other : each));
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(words);
      if (own === number) place.replaceChildren(...answer.unknown ? [makeUnknown(answer.unknown, replaceWord)] : draw(answer));
    } catch (error) {
      if (own === number && error.name !== "AbortError") place.replaceChildren(studio.makeError(error));
    }
    if (own === number) place.removeAttribute("aria-busy");
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = inputs.map(({ input }) => input.value.trim()), missing = words.indexOf("");
    if (missing >= 0) inputs[missing].input.focus();
    else (onSubmit ?? submit)(words);
  });
  const clear = () => { number++; place.replaceChildren(); };
  return { element: make("section", { class: "card", "aria-labelledby": titleId }, make("h2", { id: titleId }, title), form, extra, place), submit, clear };
}

// `ask(name, values)` calls a function of the server about the chosen vectors. `onWord(word)` goes to a word, `onFound(answer)` is
// called with the neighbours of one.
export function makeNearest(listId, ask, onWord, onFound, studio) {
  const trail = make("div", { class: "vectors-trail", role: "group", "aria-label": "Words looked at" }), words = [];
  const showTrail = (word) => {
    if (words.at(-1) !== word) words.push(word);
    trail.hidden = words.length < 2;
    trail.replaceChildren(...words.slice(-MAX_TRAIL).flatMap((each, at) => [at ? " › " : "", makeWord(each, onWord)]));
  };
  const draw = (answer) => {
    showTrail(answer.word);
    onFound(answer);
    const about = [answer.is_composed && "not in the vocabulary: composed of its n-grams", answer.count !== null && `${formatWhole(answer.count)} times in the corpus`, `norm ${formatFixed(answer.norm, 3)}`];
    return [make("p", { class: "hint" }, make("b", {}, make("bdi", {}, answer.word)), ": " + about.filter(Boolean).join(", ")), makeTable(`Words nearest to ${answer.word}`, answer.nearest, onWord)];
  };
  trail.hidden = true;
  const form = makeForm({ title: "Nearest words", inputs: [makeWordInput("Word", listId)], button: "Find", draw, extra: trail,
    ask: ([word]) => ask("nearest_words", { word }), onSubmit: ([word]) => onWord(word) }, studio);  // the word becomes part of the address
  return { ...form, clear() { form.clear(); words.length = 0; trail.hidden = true; } };
}

export function makeAnalogy(listId, ask, onWord, studio) {
  let method = "add";
  const inputs = [makeWordInput("a", listId), makeWordInput("is to b", listId), makeWordInput("as c", listId)];
  const choice = makeChoice("method", [["add", "b − a + c"], ["multiply", "product"]], method, (value) => { method = value; const words = inputs.map(({ input }) => input.value.trim()); if (words.every(Boolean)) form.submit(words); });
  const draw = ({ words: [a, b, c], answers }) => [make("p", { class: "hint" }, make("bdi", {}, a), " is to ", make("bdi", {}, b), " as ", make("bdi", {}, c), " is to …"),
    makeTable(`${a} is to ${b} as ${c} is to`, answers, onWord)];
  const form = makeForm({ title: "Analogy", inputs, button: "Solve", draw, extra: choice, ask: ([a, b, c]) => ask("analogy", { a, b, c, method }) }, studio);
  form.element.classList.add("vectors-analogy");
  return form;
}

export function makeSimilarity(listId, ask, studio) {
  const describeRank = (rank, word) => rank === null ? null : `number ${formatWhole(rank)} among the neighbours of ${word}`;
  const draw = ({ words: [a, b], cosine, dot, ranks }) => [make("p", { class: "vectors-number" }, make("b", {}, formatFixed(cosine, 3)), " cosine"),
    make("p", { class: "hint" }, [`dot product ${formatFixed(dot, 3)}`, describeRank(ranks[0], a) && `${b} is ${describeRank(ranks[0], a)}`, describeRank(ranks[1], b) && `${a} is ${describeRank(ranks[1], b)}`].filter(Boolean).join("; ") + ".")];
  const inputs = [makeWordInput("First word", listId), makeWordInput("Second word", listId)];
  return makeForm({ title: "Similarity", inputs, button: "Compare", draw, ask: ([a, b]) => ask("similarity", { a, b }) }, studio);
}
