// A running text whose tokens are coloured by a value, if they have one. Negative values are also underlined with dots.
import { createColours, followTheme, makeColourBar } from "./colours.js";
import { make } from "./elements.js";
import { explore } from "./explore.js";
import { clamp, createFormat, formatPlural, isNumber, showToken } from "./numbers.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { findExtent } from "./scales.js";

// Words are separated by spaces; tokens that contain their own white space are joined as they are. The mark of a word that
// is outside the vocabulary is no white space of its own.
function makeTexts(tokens) {
  const hasSpaces = tokens.some((token) => /\s/.test(token.replace(/ \(unk\)$/, "")));
  return tokens.map((token, at) => hasSpaces || at === 0 || token.startsWith("##") ? token : [" ", token]);
}

export function drawTokenText(figure, { scales, pins }) {
  const axis = makeAxis(figure.tokens, "token"), [minimum, maximum] = findExtent(figure.values), size = Math.max(Math.abs(minimum), Math.abs(maximum));
  const hasValues = Number.isFinite(size), high = !hasValues ? 1 : figure.scale === "diverging" ? size || 1 : maximum;
  const low = figure.scale === "diverging" ? -high : hasValues ? Math.min(0, minimum) : 0;
  const colours = createColours(scales, { scale: figure.scale, role: "", low, high });
  const spans = figure.tokens.map((token, i) => make("span", { "data-index": i,
    class: ["token", figure.values[i] < 0 && "negative", figure.selected?.includes(i) && "selected"].filter(Boolean).join(" ") }));
  const texts = makeTexts(figure.tokens), format = createFormat(figure.values);
  const plot = make("div", { class: "plot token-text", "data-chart": "tokens", "aria-roledescription": "text with values", dir: "auto",
    "aria-label": `${figure.title}: ${hasValues ? figure.value_label + " of " : ""}${formatPlural(figure.tokens.length, "token")}` });
  const line = make("p", {});
  texts.forEach((text, i) => {
    if (Array.isArray(text)) line.append(text[0]);
    const token = Array.isArray(text) ? text[1] : text;
    spans[i].append(token.trim() === "" ? showToken(token) : token.replace(/\n/g, "⏎"));
    line.append(spans[i]);
    if (token.includes("\n")) line.append(make("br"));
  });
  plot.append(line);

  const paint = () => spans.forEach((span, i) => {
    if (isNumber(figure.values[i])) Object.assign(span.style, { backgroundColor: colours.css(figure.values[i]), color: colours.ink(figure.values[i]) });
  });
  const paintPins = () => { const pinned = new Set(pins.find(axis)); spans.forEach((span, i) => span.classList.toggle("is-pinned", pinned.has(i))); };
  const makeMark = (i) => ({ key: String(i), i });
  explore(plot, {
    find(x, y, event) {
      const span = event.target.closest?.("[data-index]");
      return span ? makeMark(Number(span.dataset.index)) : null;
    },
    describe({ i }) {
      const box = spans[i].getClientRects()[0] ?? spans[i].getBoundingClientRect(), own = plot.getBoundingClientRect();
      return { ...hasValues ? { value: format(figure.values[i]), title: figure.value_label } : {}, rows: [["token", nameItem(axis, i)]], text: figure.details?.[i] ?? "",
        at: { x: box.left - own.left + box.width / 2 - 20, y: box.top - own.top, height: box.height - 8 } };
    },
    highlight: (mark) => spans.forEach((span, i) => span.classList.toggle("is-hovered", mark?.i === i)),
    first: () => spans.length ? makeMark(0) : null,
    step({ i }, dx, dy) {
      if (dx) return makeMark(clamp(i + dx, 0, spans.length - 1));
      const boxes = spans.map((span, at) => ({ at, box: span.getBoundingClientRect() })), from = boxes[i].box;
      const others = boxes.filter(({ box }) => (box.top - from.top) * dy > 4), next = others.at(dy > 0 ? 0 : -1)?.box.top;
      const distance = ({ box }) => Math.abs(box.left - from.left);
      const onLine = others.filter(({ box }) => Math.abs(box.top - next) < 4).sort((a, b) => distance(a) - distance(b));
      return onLine.length ? makeMark(onLine[0].at) : null;
    },
    items: ({ i }) => [makeItem(axis, i)],
  }, pins);
  paint();
  followTheme(plot, paint);
  pins.follow(plot, () => pins.find(axis), paintPins);
  return make("div", {}, plot, hasValues && make("div", { class: "below" }, makeColourBar(colours, figure.value_label, figure.values.some((value) => !isNumber(value))),
    spans.some((span) => span.classList.contains("negative")) && make("span", { class: "hint" }, "negative values are underlined with dots")));
}
