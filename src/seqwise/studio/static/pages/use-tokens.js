// A line of tokens that can be pointed at, focused with the arrow keys, and selected.
import { make } from "../../../page/components/elements.js";
import { createColours, followTheme, makeColourBar } from "../../../page/components/colours.js";
import { isNumber, showToken } from "../../../page/components/numbers.js";
import { formatShare } from "./use-parts.js";

const MAX_BITS = 16;
export const computeBits = (probability) => isNumber(probability) ? Math.min(MAX_BITS, -Math.log2(Math.max(probability, 1e-30))) : null;
export const createTokenColours = (scales) => createColours(scales, { scale: "sequential", role: "", low: 0, high: MAX_BITS });
export const makeTokenLegend = (colours) => makeColourBar(colours, "surprise of a token: −log₂ probability, in bits");

// `onPoint(index or null)` follows the pointer and the focus; `onSelect(index)` a click or Enter. A token is
// { text, token, probability, isPrompt, className }.
export function createTokenLine(label, { colours = null, onPoint = () => {}, onSelect = null }) {
  const line = make("div", { class: "use-tokens", role: "group", "aria-label": label, dir: "auto" });
  const spans = [];
  const find = (event) => { const span = event.target.closest?.("[data-index]"); return span ? Number(span.dataset.index) : null; };
  const focus = (index) => {
    if (!spans[index]) return;
    for (const span of spans) span.tabIndex = span === spans[index] ? 0 : -1;
    spans[index].focus();
  };
  const paint = (span) => {
    const { bits, isPrompt } = span.use;
    if (bits === null || !colours) return;
    if (isPrompt) span.style.borderBottomColor = colours.css(bits);
    else Object.assign(span.style, { backgroundColor: colours.css(bits), color: colours.ink(bits) });
  };
  line.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") onPoint(find(event)); });
  line.addEventListener("pointerleave", () => onPoint(null));
  line.addEventListener("focusin", (event) => onPoint(find(event)));
  line.addEventListener("focusout", () => onPoint(null));
  line.addEventListener("click", (event) => { const index = find(event); if (index !== null && onSelect) { focus(index); onSelect(index); } });
  line.addEventListener("keydown", (event) => {
    const index = find(event);
    if (index === null || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) focus(index + step);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(spans.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && onSelect) onSelect(index);
    else return;
    event.preventDefault();
  });
  if (colours) followTheme(line, () => spans.forEach(paint));

  const add = ({ text, token, probability = null, isPrompt = false, className = "", description = "" }) => {
    const shown = text || token || "", bits = computeBits(probability);
    const name = showToken(shown) + (isNumber(probability) ? `, ${formatShare(probability)}` : "") + (description ? `, ${description}` : "");
    const span = make("span", { class: ["use-token", isPrompt && "is-prompt", className].filter(Boolean).join(" "), "data-index": spans.length,
      role: onSelect ? "button" : "img", tabindex: spans.length ? "-1" : "0", "aria-label": name });
    span.use = { bits, isPrompt };
    const space = shown.match(/^ +(?=\S)/)?.[0] ?? "";
    if (space) line.append(space);
    span.append(shown === " " ? shown : shown.trim() === "" ? showToken(shown) : shown.slice(space.length).replace(/\n/g, "⏎"));
    paint(span);
    spans.push(span);
    line.append(span);
    if (shown.includes("\n")) line.append(make("br"));
    return span;
  };
  return {
    element: line, spans, add, focus,
    fill(tokens) {
      line.replaceChildren();
      spans.length = 0;
      tokens.forEach(add);
      line.classList.toggle("has-characters", spans.filter((span) => span.textContent.length < 2).length > 0.7 * spans.length);
    },
    mark: (index, className = "is-selected") => spans.forEach((span, at) => {
      span.classList.toggle(className, at === index);
      if (onSelect && className === "is-selected") span.setAttribute("aria-pressed", String(at === index));
    }),
  };
}

// Shows what `describe(index)` returns beside a line of tokens: of the token that is pointed at, or was selected.
export function createInspector(box, describe, mark) {
  let selected = null, shown = null;
  const show = (index) => {
    if (index === shown) return;
    shown = index;
    const content = index === null ? null : describe(index);
    if (content) box.replaceChildren(content);
  };
  const select = (index) => {
    selected = selected === index ? null : index;
    mark(selected);
    shown = null;
    show(index);
  };
  return {
    point: (index) => { if (selected === null && index !== null) show(index); },
    select,
    clear(content = null) { selected = shown = null; mark(null); box.replaceChildren(...content ? [content] : []); },
  };
}
