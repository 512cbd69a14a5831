// Several heatmaps of one shape side by side, such as all heads of all layers. A click opens one in full.
import { followTheme, makeColourBar } from "./colours.js";
import { draw, make, makeButton, makeId } from "./elements.js";
import { ARROWS, explore } from "./explore.js";
import { describeCell, describePooling, drawHeatmap, drawOutline, prepareHeatmap } from "./heatmap.js";
import { findCell, paintCells } from "./raster.js";
import { followWidth, measureText } from "./scales.js";

const GAP = 6, NARROW_GAP = 3, MAX_PANEL = 250;  // pixels

// "head 5" → "5", "layer 2, head 5" → "2·5", for panels without room.
const shortenTitle = (title) => title.match(/\d+/g)?.join("·") ?? title;

// Splits titles such as "layer 2, head 5" where the panels of each row share the first part: returns the names of the
// rows, and a caption for each panel. Otherwise rows have no names, and the captions are the whole titles.
function splitTitles(titles, columns) {
  const cuts = titles.map((title) => title.lastIndexOf(", ")), starts = titles.map((title, at) => title.slice(0, Math.max(0, cuts[at])));
  const isShared = columns > 1 && starts.every((start, at) => start && start === starts[at - at % columns]);
  if (!isShared) return { rowNames: [], captions: titles };
  return { rowNames: starts.filter((_, at) => at % columns === 0), captions: titles.map((title, at) => title.slice(cuts[at] + 2)) };
}

function makePanel(heatmap, title, shortTitle) {
  const canvas = make("canvas", { class: "cells" }), lines = draw("svg", { class: "overlay", "aria-hidden": "true" });
  const caption = make("span", { class: "panel-title" });
  const button = make("button", { type: "button", class: "panel", "aria-label": title, "aria-expanded": "false", tabindex: "-1" },
    make("span", { class: "panel-cells" }, canvas, lines), caption);
  return { heatmap, title, shortTitle, canvas, lines, caption, button };
}

export function drawHeatmapGrid(figure, context) {
  const { scales, pins } = context;
  const columns = Math.max(1, figure.num_columns), { rowNames, captions } = splitTitles(figure.panels.map((panel) => panel.title), columns);
  const panels = figure.panels.map((panel, at) => makePanel(prepareHeatmap(panel, scales), panel.title, captions[at]));
  const first = panels[0].heatmap, id = makeId("opened");
  const makeRowName = (at) => at % columns === 0 && rowNames.length ? [make("div", { class: "panel-row" }, rowNames[at / columns])] : [];
  const plot = make("div", { class: "plot panels", "data-chart": "heatmap-grid", role: "group",
    "aria-label": `${figure.title}: ${panels.length} panels` }, ...panels.flatMap((panel, at) => [...makeRowName(at), panel.button]));
  const opened = make("div", { class: "opened", id, hidden: true, role: "region", "aria-label": "opened panel" });
  let size = null, openIndex = -1;

  function paint(width) {
    const gap = width / columns < 60 ? NARROW_GAP : GAP;
    const panelWidth = Math.min(MAX_PANEL, Math.floor((width - gap * (columns - 1)) / columns) - 2);
    const shape = Math.max(0.5, Math.min(1.25, first.rows.length / first.columns.length));
    size = { width: panelWidth, height: Math.max(8, Math.round(panelWidth * shape)) };
    plot.style.gridTemplateColumns = `repeat(${columns}, ${panelWidth + 2}px)`;
    plot.style.gap = gap + "px";
    const hasRoom = captions.every((caption) => measureText(caption) + 6 <= panelWidth);
    for (const panel of panels) {
      panel.caption.textContent = hasRoom ? panel.shortTitle : shortenTitle(panel.shortTitle);
      panel.caption.hidden = panelWidth < 22;
    }
    paintPanels();
  }

  function paintPanels() {
    if (!size) return;
    for (const { heatmap, canvas, lines } of panels) {
      const { matrix, cells, colours } = heatmap;
      paintCells(canvas, size.width, size.height, cells, { top: 0, left: 0, bottom: matrix.rows, right: matrix.columns }, colours);
      lines.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    }
    paintPins();
  }

  function paintPins() {
    if (!size) return;
    const rows = first.rows.pinned(pins, first.columns), cols = first.columns.pinned(pins, first.rows);
    const height = size.height / first.rows.length, width = size.width / first.columns.length;
    for (const { lines } of panels) lines.replaceChildren(
      ...rows.flatMap((row) => drawOutline(0.5, row * height, size.width - 1, Math.max(2, height))),
      ...cols.flatMap((column) => drawOutline(column * width, 0.5, Math.max(2, width), size.height - 1)));
  }

  const marks = {
    find(x, y, event) {
      const index = panels.findIndex((panel) => panel.button.contains(event.target));
      if (index < 0) return null;
      const { heatmap, canvas } = panels[index], [row, column] = findCell(canvas, event, heatmap.rows.length, heatmap.columns.length) ?? [-1, -1];
      return makeMark(index, row, column, { x, y });
    },
    describe: ({ index, row, column, at }) => {
      const { title, heatmap } = panels[index], about = describeCell(heatmap, row, column);
      const texts = [about.text, figure.panels[index].note, index === openIndex ? "Click to close" : "Click to open"];
      return { ...about, title: about.title ? `${title}: ${about.title}` : title, text: texts.filter(Boolean).join(" · "), at };
    },
    highlight() {},
    open: ({ index }) => open(index === openIndex ? -1 : index),
  };
  const makeMark = (index, row, column, at) => ({ key: `${index}:${row},${column}`, index, row, column, at });

  function open(index) {
    openIndex = index;
    panels.forEach(({ button }, at) => button.setAttribute("aria-expanded", String(at === index)));
    opened.hidden = index < 0;
    opened.replaceChildren();
    if (index < 0) return;
    const link = figure.links?.[index], target = link && context.findFigure?.(link);
    if (target) { open(-1); target.scrollIntoView({ block: "start" }); target.focus({ preventScroll: true }); return; }
    const { title, note } = figure.panels[index];
    const move = (step) => { const next = (index + step + panels.length) % panels.length; focus(next); open(next); };
    opened.append(
      make("div", { class: "opened-head" }, make("h3", {}, title),
        makeButton("‹", () => move(-1), { class: "small", "aria-label": "Previous panel" }),
        makeButton("›", () => move(1), { class: "small", "aria-label": "Next panel" }),
        makeButton("Close", () => { open(-1); panels[index].button.focus(); }, { class: "small" })),
      drawHeatmap(figure.panels[index], context), ...note ? [make("p", { class: "note" }, note)] : []);
  }

  // One panel is in the tab order; the arrow keys move to the others.
  function focus(index) {
    panels.forEach(({ button }, at) => button.setAttribute("tabindex", at === index ? "0" : "-1"));
    panels[index].button.focus({ preventScroll: true });
  }
  panels[0].button.setAttribute("tabindex", "0");
  const explorer = explore(plot, marks, pins, false);
  panels.forEach(({ button }, index) => {
    button.setAttribute("aria-controls", id);
    button.addEventListener("focus", () => {
      const below = { x: button.offsetLeft + size.width / 2, y: button.offsetTop + size.height };
      if (button.matches(":focus-visible")) explorer.show(makeMark(index, -1, -1, below));
    });
    button.addEventListener("blur", explorer.leave);
    button.addEventListener("keydown", (event) => {
      const [dx, dy] = ARROWS[event.key] ?? [0, 0], next = index + dx + dy * columns;
      if ((dx || dy) && next >= 0 && next < panels.length) { focus(next); event.preventDefault(); event.stopPropagation(); }
    });
  });
  followTheme(plot, paintPanels);
  pins.follow(plot, () => [first.rows.pinned(pins, first.columns), first.columns.pinned(pins, first.rows)], paintPins);
  followWidth(plot, paint);
  const bar = makeColourBar(first.colours, first.valueLabel, panels.some((panel) => panel.heatmap.hasMissing));
  return make("div", {}, plot, make("div", { class: "below" }, bar), describePooling(first.matrix), opened);
}
