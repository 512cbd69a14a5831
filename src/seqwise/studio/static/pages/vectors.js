// Word vectors: the map, nearest words, analogies and similarities of a file or of the embedding of a run.
import { make, makeButton, makeChoice, makeId } from "../../../page/components/elements.js";
import { formatBytes, formatDigits, formatWhole } from "../../../page/components/numbers.js";
import { loadStyle } from "../styles.js";
import { makeMap } from "./vectors-map.js";
import { MAX_UPLOAD, getKey, makeSourceChoice, readKey } from "./vectors-source.js";
import { makeAnalogy, makeNearest, makeSimilarity } from "./vectors-words.js";

const makeCommand = (text) => make("code", {}, text);

function makeEmpty(choice) {
  if (!choice.isEmpty) return make("p", { class: "hint" }, "Choose a file of vectors, or the embedding that a run has learned.");
  return make("div", { class: "card" }, make("p", {}, "There are no vectors in the folders yet. Train some on a text, or open a file (.safetensors, word2vec .bin, fastText .vec, GloVe .txt; up to " + formatBytes(MAX_UPLOAD) + " can be sent, a larger one belongs in a folder):"),
    make("p", {}, makeCommand("seqwise vectors train corpus.txt --method skipgram --out runs/vectors.safetensors")));
}

function describeInfo({ num_words: words, dim, num_bytes: bytes, training, has_subwords: hasSubwords, messages }) {
  return [formatWhole(words) + " words", dim + " dimensions", formatBytes(bytes) + " in memory", training.join(" on "), hasSubwords && "with n-grams", ...messages].filter(Boolean).join(" · ");
}

// Reads the vectors, with progress that can be cancelled.
function makeLoader(studio) {
  const bar = make("progress", { max: 1, "aria-label": "The vectors are read" }), text = make("span", { class: "hint", role: "status" });
  let controller = null;
  const element = make("div", { class: "row vectors-busy", hidden: true }, bar, text, makeButton("Cancel", () => controller?.abort(), { class: "small" }));
  async function load(values) {
    controller?.abort();
    const own = controller = new AbortController();
    element.hidden = false;
    bar.removeAttribute("value");
    text.textContent = "Reading …";
    const onEvent = ({ progress }) => {
      if (!progress?.[1]) return;
      bar.value = progress[0] / progress[1];
      text.textContent = `Reading … ${formatDigits(100 * bar.value, 2)} %`;
    };
    try { return await studio.call("open_vectors", values, { onEvent, signal: own.signal }); }
    finally { if (own === controller) element.hidden = true; }
  }
  return { element, load, cancel: () => controller?.abort() };
}

export async function show(element, parameters, studio) {
  const [{ files, is_complete: isComplete }] = await Promise.all([studio.get("/api/vectors"), loadStyle("vectors")]);
  let source = null, word = "", options = {}, number = 0;  // options: of a run, the vocabulary and the embedding
  const listId = makeId("words"), list = make("datalist", { id: listId });
  const ask = (name, values, extra) => studio.call(name, { ...source, ...options, ...values }, extra);
  const go = (next) => studio.go("vectors", { source: source && getKey(source), ...options, ...next });
  const goToWord = (next) => { if (next === word) nearest.submit([word]); else go({ word: next }); };

  const choice = makeSourceChoice(files, studio.rows.listTop(), studio, (next) => studio.go("vectors", { source: getKey(next) }));
  const loader = makeLoader(studio), info = make("p", { class: "hint vectors-info" }), problem = make("div"), embeddings = make("div", { class: "row" });
  const map = makeMap(ask, goToWord, studio);
  const nearest = makeNearest(listId, ask, goToWord, (answer) => map.select([answer.word, ...answer.nearest.map((each) => each.word)]), studio);
  const analogy = makeAnalogy(listId, ask, goToWord, studio), similarity = makeSimilarity(listId, ask, studio);
  const content = make("div", { class: "vectors-columns", hidden: true }, map.element, nearest.element, make("div", { class: "vectors-below" }, analogy.element, similarity.element));
  nearest.element.classList.add("vectors-nearest");
  const empty = makeEmpty(choice);
  element.append(make("h1", {}, "Vectors"), choice.element, ...isComplete ? [] : [make("p", { class: "hint" }, `Only the first ${files.length} files are listed.`)],
    loader.element, problem, info, embeddings, empty, content, list);

  function showEmbeddings({ vocabularies }) {
    const names = Object.keys(vocabularies), vocabulary = options.vocabulary ?? names[0], kinds = vocabularies[vocabulary] ?? [];
    const rows = [names.length > 1 && makeChoice("vocabulary", names.map((name) => [name, name]), vocabulary, (value) => go({ vocabulary: value })),
      kinds.length > 1 && makeChoice("embedding", kinds.map((kind) => [kind, kind]), options.embedding ?? kinds[0], (value) => go({ embedding: value }))];
    embeddings.replaceChildren(...rows.filter(Boolean));
  }

  async function open() {
    const own = ++number;
    for (const each of [info, problem, embeddings]) each.replaceChildren();
    content.hidden = true;
    for (const part of [nearest, analogy, similarity]) part.clear();
    choice.show(source);
    empty.hidden = source !== null;
    if (!source) return loader.cancel();
    try {
      const about = await loader.load({ ...source, ...options });
      if (own !== number) return;
      info.textContent = describeInfo(about);
      showEmbeddings(about);
      list.replaceChildren(...about.words.map((each) => make("option", { value: each })));
      content.hidden = false;
      const mapping = map.open(about.num_words);
      if (word) nearest.submit([word]);
      await mapping;
    } catch (error) {
      if (own !== number) return;
      const isCancelled = error.name === "AbortError";
      problem.replaceChildren(isCancelled ? make("p", { class: "hint" }, "Reading was cancelled.") : studio.makeError(error));
    }
  }
  function change(next) {
    const nextOptions = Object.fromEntries(["vocabulary", "embedding"].filter((name) => next.get(name)).map((name) => [name, next.get(name)]));
    const nextSource = readKey(next.get("source")), isSame = JSON.stringify([nextSource, nextOptions]) === JSON.stringify([source, options]);
    const nextWord = next.get("word") ?? "", isOther = nextWord !== word;
    [source, options, word] = [nextSource, nextOptions, nextWord];
    if (!isSame || number === 0) return void open();
    if (word && isOther) nearest.submit([word]);
    if (!word && isOther) { nearest.clear(); map.select([]); }
  }
  change(parameters);
  return { change, close() { number++; loader.cancel(); map.close(); } };
}
