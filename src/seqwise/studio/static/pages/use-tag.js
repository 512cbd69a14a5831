// Tag: spans, or the tag of each word, marked in the text by colour and name; the probabilities of the others beside it.
import { make } from "../../../page/components/elements.js";
import { formatShare, makeBar, makeCard } from "./use-parts.js";
import { createTextTask } from "./use-text.js";
import { createInspector } from "./use-tokens.js";

const NUM_COLOURS = 8, OUTSIDE = "O";

// The words of each span, and words alone otherwise, as { words, type } with indices of words.
function groupWords(words, spans) {
  const groups = [];
  words.forEach((word, index) => {
    const span = spans.find(({ start, end }) => word.start >= start && word.stop <= end);
    if (span && groups.at(-1)?.span === span) groups.at(-1).words.push(index);
    else groups.push({ span, type: span?.type ?? null, words: [index] });
  });
  return groups;
}

const formatAnswer = ({ words, spans, has_spans: hasSpans }, text) => hasSpans
  ? groupWords(words, spans).map(({ type, words: indices }) => {
    const piece = text.slice(words[indices[0]].start, words[indices.at(-1)].stop);
    return type ? `[${type} ${piece}]` : piece;
  }).join(" ") : words.map(({ start, stop, tag }) => `${text.slice(start, stop)}/${tag}`).join(" ");

export function create(about, context) {
  function draw(result, text) {
    const { words, spans, has_spans: hasSpans, types } = result;
    const colour = (type) => `--use-colour: var(--c${types.indexOf(type) % NUM_COLOURS})`;
    const line = make("div", { class: "use-tagged", dir: "auto", role: "group", "aria-label": "Tagged text" }), box = make("div", { class: "use-side", "aria-live": "polite" });
    const elements = [];
    let end = 0;
    const makeWord = (index) => {
      const { start, stop, tag, type, probability } = words[index], content = text.slice(start, stop);
      const name = hasSpans ? type === OUTSIDE ? "no span" : type : tag;
      elements[index] = make("span", { class: "use-word", "data-index": index, tabindex: index ? "-1" : "0", role: "button", "aria-pressed": "false",
        "aria-label": `${content}: ${name}, ${formatShare(probability)}` }, content);
      if (probability < 0.5) elements[index].classList.add("is-doubtful");
      return elements[index];
    };
    for (const { type, words: indices } of groupWords(words, spans)) {
      line.append(text.slice(end, words[indices[0]].start));
      const label = hasSpans ? type : words[indices[0]].tag === OUTSIDE ? null : words[indices[0]].tag;
      const parts = indices.flatMap((index, at) => [at ? text.slice(words[indices[at - 1]].stop, words[index].start) : "", makeWord(index)]);
      if (label) line.append(make("span", { class: "use-span", style: colour(label) }, ...parts, make("b", { "aria-hidden": "true" }, label)));
      else line.append(...parts);
      end = words[indices.at(-1)].stop;
    }
    line.append(text.slice(end));
    const inspector = createInspector(box, (index) => {
      const { start, stop, alternatives, type } = words[index];
      return make("div", { class: "use-alternatives" }, make("h3", {}, make("bdi", {}, text.slice(start, stop))),
        make("ul", {}, ...alternatives.map(({ name, probability }) => make("li", {}, makeBar(name === OUTSIDE && hasSpans ? "no span" : name, probability, { isChosen: name === type })))),
        make("p", { class: "hint" }, "Probability of each, whatever the tags of the other words."));
    }, (index) => elements.forEach((word, at) => word.setAttribute("aria-pressed", String(at === index))));
    followWords(line, elements, inspector);
    inspector.point(Math.max(0, words.findIndex(({ type }) => type !== OUTSIDE)));
    const used = types.filter((type) => words.some((word) => (hasSpans ? word.type : word.tag) === type));
    const counts = make("div", { class: "use-legend", "aria-label": "tags in this text", role: "list" }, ...used.map((type) => make("span", { role: "listitem", style: colour(type) },
      make("i", { "aria-hidden": "true" }), `${type} ${hasSpans ? spans.filter((span) => span.type === type).length : words.filter((word) => word.tag === type).length}`)));
    return [makeCard("Tags", make("div", { class: "use-split" }, make("div", {}, line, used.length ? counts : make("p", { class: "hint" }, "The model finds no span in this text.")), box))];
  }
  return createTextTask(about, context, {
    label: "Text", submit: "Tag", hint: "Edit a word and see what changes.", call: "tag", draw, names: { input: "text", answer: "tags" },
    summarize: (result, text) => ({ answer: formatAnswer(result, text), rows: [] }),
  });
}

function followWords(line, elements, inspector) {
  const find = (event) => { const word = event.target.closest?.("[data-index]"); return word ? Number(word.dataset.index) : null; };
  line.addEventListener("pointermove", (event) => inspector.point(find(event)));
  line.addEventListener("focusin", (event) => inspector.point(find(event)));
  line.addEventListener("click", (event) => { const index = find(event); if (index !== null) inspector.select(index); });
  line.addEventListener("keydown", (event) => {
    const index = find(event), next = index + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0);
    if (event.key === "Enter" || event.key === " ") inspector.select(index);
    else if (next === index || !elements[next]) return;
    else {
      elements[index].tabIndex = -1;
      elements[next].tabIndex = 0;
      elements[next].focus();
    }
    event.preventDefault();
  });
}
