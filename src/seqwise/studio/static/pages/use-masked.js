// Fill in [MASK]: the most probable words for each mask; a click fills one in.
import { make, makeButton } from "../../../page/components/elements.js";
import { formatShare, makeBar, makeCard } from "./use-parts.js";
import { createTextTask } from "./use-text.js";

const MASK = /\[MASK\]|<mask>/g;

// The text with one of its masks replaced by a word.
function fillMask(text, index, { word, is_continuation: isContinuation }) {
  let at = -1;
  return text.replace(MASK, (mask) => ++at === index ? word : mask).replace(isContinuation ? new RegExp(` +(?=${word.replace(/\W/g, "\\$&")})`) : /^$/, "");
}

export function create(about, context) {
  const addMask = makeButton("Insert [MASK]", () => {
    const { area } = task.textInput, { selectionStart: start, selectionEnd: stop } = area;
    area.setRangeText("[MASK]", start, stop, "end");
    area.focus();
    task.use("edit");
  }, { class: "small", title: "in the place of the cursor, or of the selected word" });
  function draw({ masks, filled }, text) {
    const parts = text.split(MASK);
    const line = make("p", { class: "use-filled", dir: "auto" }, ...parts.flatMap((part, at) => at < masks.length
      ? [part, make("mark", { title: formatShare(masks[at][0].probability) }, masks[at][0].is_continuation ? "##" + masks[at][0].word : masks[at][0].word)] : [part]));
    const lists = masks.map((mask, at) => makeCard(masks.length > 1 ? `[MASK] ${at + 1}` : "[MASK]",
      make("ul", { class: "use-bars" }, ...mask.map((each, rank) => make("li", {}, makeBar((each.is_continuation ? "##" : "") + each.word, each.probability, { isChosen: rank === 0,
        label: `Fill in ${each.word}, ${formatShare(each.probability)}`, onChoose: () => task.textInput.replace(fillMask(text, at, each)) }))))));
    return [makeCard("Filled in", line, make("p", { class: "hint" }, "Each mask is predicted on its own, while the others stay masked. Click a word to fill it in.")),
      make("div", { class: "use-columns" }, ...lists)];
  }
  const task = createTextTask(about, context, {
    label: "Text with [MASK]", submit: "Fill in", hint: "Put [MASK] in the place of a word; edit another word and see what changes.",
    call: "fill_masks", controls: [addMask], draw, names: { input: "text", answer: "filled in" },
    summarize: ({ masks, filled }) => ({ answer: filled,
      rows: masks.flatMap((mask, at) => mask.map(({ word, probability }) => ({ name: masks.length > 1 ? `${at + 1}: ${word}` : word, value: probability }))) }),
  });
  return task;
}
