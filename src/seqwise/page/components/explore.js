// Pointing, touching and the arrow keys: the number behind every mark, pins, and zooming by dragging.
import { make } from "./elements.js";

const GAP = 14, DRAG = 8;  // pixels: between a mark and its tooltip; from which on a press is a drag
const ZOOMS = { "+": 2, "=": 2, "-": 0.5, "0": 0 };  // factors; 0 shows all
export const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// A tooltip has a heading and rows of names and values.
function fillTip(tip, { value, title, rows = [], text = "" }) {
  tip.replaceChildren(...[
    value !== undefined && make("b", { class: "tip-value" }, value),
    title && make("span", { class: "tip-title" }, title),
    ...rows.map(([name, content]) => make("div", {}, make("span", { class: "tip-name" }, name), make("span", { class: "tip-content" }, content))),
    text && make("p", {}, text),
  ].filter(Boolean));
}

// Keeps the tooltip within the visible width of the plot, and above or below the mark where there is room on the screen.
function placeTip(tip, plot, { x, y, height = 0 }) {
  const scroller = plot.parentElement, left = scroller?.classList.contains("scroller") ? scroller.scrollLeft : 0;
  const width = left || plot.clientWidth > (scroller?.clientWidth ?? Infinity) ? scroller.clientWidth : plot.clientWidth;
  const besides = x + GAP + tip.offsetWidth <= left + width ? x + GAP : x - GAP - tip.offsetWidth;
  tip.style.left = Math.max(left, Math.min(left + width - tip.offsetWidth, besides)) + "px";
  const below = y + height + GAP, top = plot.getBoundingClientRect().top;
  const hasRoomBelow = top + below + tip.offsetHeight <= innerHeight || top + y - GAP - tip.offsetHeight < 0;
  tip.style.top = (hasRoomBelow ? below : y - GAP - tip.offsetHeight) + "px";
}

// `marks` says what can be pointed at. Of these functions only the first three are needed:
//   find(x, y, event)   the mark at a position of the plot, or null; marks with equal `key` are the same
//   describe(mark)      { value, title, rows, text, at: { x, y } } for the tooltip, or null for none
//   highlight(mark)     draws the mark at the pointer; null for none
//   first(), step(mark, dx, dy)   for the arrow keys; with `isHorizontal` only for left and right
//   items(mark)         what a click pins
//   open(mark)          what a click does instead of pinning
//   zoom({ left, right, top, bottom }), zoomBy(factor), pan(dx, dy), isZoomed()
export function explore(plot, marks, pins, isFocusable = true) {
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  let current = null, anchor = null;  // the mark at the pointer; the one that was pinned here
  plot.append(tip);
  if (isFocusable) {
    plot.setAttribute("tabindex", "0");
    plot.setAttribute("role", "application");
  }

  const show = (mark) => {
    current = mark;
    marks.highlight(mark);
    const about = mark && marks.describe(mark);
    tip.hidden = !about;
    plot.classList.toggle("is-over", Boolean(mark));
    if (!about) return;
    fillTip(tip, about);
    placeTip(tip, plot, about.at);
  };
  const leave = () => show(anchor);
  const select = (mark, event) => {
    if (!mark) return;
    if (marks.open) return marks.open(mark);
    const items = marks.items?.(mark) ?? [];
    pins.select(items, event.shiftKey || event.ctrlKey || event.metaKey);
    anchor = items.some(pins.has) ? mark : null;
    show(mark);
  };
  // The position in pixels of the plot, which a slide enlarges or reduces.
  const locate = (event) => {
    const box = plot.getBoundingClientRect(), scale = box.width / plot.offsetWidth || 1;
    return [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
  };
  pins.follow(plot, () => pins.getItems().map((item) => [item.key, item.index]), () => {
    if (!anchor || marks.items(anchor).some(pins.has)) return;
    const isShown = current?.key === anchor.key && !plot.matches(":hover");
    anchor = null;
    if (isShown) show(null);
  });

  const drag = marks.zoom ? followDrag(plot, marks, locate, () => show(null)) : { isActive: () => false, hasEnded: () => false };
  plot.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch" && !drag.isActive()) show(marks.find(...locate(event), event));
  });
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("click", (event) => { if (!drag.hasEnded()) select(marks.find(...locate(event), event), event); });
  if (isFocusable) plot.addEventListener("focus", () => { if (plot.matches(":focus-visible") && !current) show(anchor ?? marks.first?.() ?? null); });
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    if (event.altKey || event.metaKey || event.ctrlKey) return;
    const arrow = ARROWS[event.key];
    if (arrow && marks.step && (arrow[0] || !marks.isHorizontal)) show(current ? marks.step(current, ...arrow) ?? current : marks.first());
    else if (event.key === "Escape" && !tip.hidden) { anchor = null; show(null); return; }  // and the page unpins
    else if ((event.key === "Enter" || event.key === " ") && current && isFocusable) select(current, event);
    else if (marks.zoomBy && event.key in ZOOMS) { marks.zoomBy(ZOOMS[event.key], current); show(current); }
    else return;
    event.preventDefault();
  });
  if (marks.pan) plot.addEventListener("wheel", (event) => {
    if (!marks.isZoomed() || event.ctrlKey) return;
    const unit = event.deltaMode === 1 ? 30 : 1;
    marks.pan(unit * (event.shiftKey ? event.deltaY : event.deltaX), unit * (event.shiftKey ? 0 : event.deltaY));
    show(marks.find(...locate(event), event));
    event.preventDefault();
  }, { passive: false });
  return { show, leave, refresh: () => show(current ?? anchor) };
}

// Zooms to the rectangle that is drawn with the mouse.
function followDrag(plot, marks, locate, onStart) {
  const band = make("div", { class: "band", hidden: true });
  plot.append(band);
  let start = null, hasMoved = false;
  const rectangle = ([x, y]) => ({ left: Math.min(x, start[0]), right: Math.max(x, start[0]), top: Math.min(y, start[1]), bottom: Math.max(y, start[1]) });
  plot.addEventListener("pointerdown", (event) => {
    hasMoved = false;
    start = event.button === 0 && event.pointerType === "mouse" ? locate(event) : null;
  });
  plot.addEventListener("pointermove", (event) => {
    if (!start) return;
    const at = locate(event);
    if (!hasMoved && Math.hypot(at[0] - start[0], at[1] - start[1]) < DRAG) return;
    if (!hasMoved) { hasMoved = true; plot.setPointerCapture(event.pointerId); onStart(); }
    const { left, right, top, bottom } = rectangle(at);
    Object.assign(band.style, { left: left + "px", top: top + "px", width: right - left + "px", height: bottom - top + "px" });
    band.hidden = false;
  });
  const end = (event) => {
    if (start && hasMoved && event.type === "pointerup") marks.zoom(rectangle(locate(event)));
    band.hidden = true;
    start = null;
  };
  plot.addEventListener("pointerup", end);
  plot.addEventListener("pointercancel", end);
  return { isActive: () => start !== null && hasMoved, hasEnded: () => hasMoved };
}
