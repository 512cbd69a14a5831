// An image under a coarser grid of weights, one panel per caption.
import { make, makeChoice } from "./elements.js";
import { explore } from "./explore.js";
import { formatDigits, formatPlural, isNumber, showToken } from "./numbers.js";
import { makeAxis, makeItem, nameItem } from "./pins.js";
import { findCell } from "./raster.js";
import { findExtent, followWidth } from "./scales.js";

const MIN_PANEL = 150, GAP = 12;  // pixels

// Dims the image on a canvas where the weight is low, compared with the highest one, `peak`.
export function paintWeights(pen, canvas, matrix, peak) {
  const image = new ImageData(matrix.columns, matrix.rows);
  matrix.values.forEach((value, at) => {
    const share = isNumber(value) && peak > 0 ? Math.max(0, value / peak) : 0;
    image.data.set([12, 10, 24, 190 * (1 - share)], 4 * at);
  });
  const small = make("canvas");
  Object.assign(small, { width: matrix.columns, height: matrix.rows });
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
}

export function drawImageOverlay(figure, { pins }) {
  const axis = makeAxis(figure.captions, "token");
  const source = make("canvas");
  Object.assign(source, { width: figure.image.width, height: figure.image.height });
  source.getContext("2d").putImageData(figure.image, 0, 0);
  const panels = figure.captions.map((caption, index) => {
    const canvas = make("canvas"), region = make("i", { class: "region", hidden: true }), matrix = figure.weights[index];
    const peak = Math.max(0, findExtent(matrix.values)[1]);
    const box = make("div", { class: "image-panel", "data-index": index },
      make("div", { class: "image-box" }, canvas, region), make("bdi", {}, showToken(caption)),
      make("div", { class: "hint panel-range" }, `0 to ${formatDigits(peak)}`));
    return { box, canvas, region, matrix, peak };
  });
  const plot = make("div", { class: "plot image-panels", "data-chart": "image", "aria-roledescription": "image with weights",
    "aria-label": `${figure.title}: ${figure.value_label} over the image for ${formatPlural(figure.captions.length, "caption")}` },
  ...panels.map((panel) => panel.box));
  let size = null, hasWeights = true;

  function paint(width) {
    const columns = Math.max(1, Math.min(panels.length, Math.floor((width + GAP) / (MIN_PANEL + GAP))));
    const panelWidth = Math.min(240, Math.floor((width - GAP * (columns - 1)) / columns));
    size = { width: panelWidth, height: Math.round(panelWidth * figure.image.height / figure.image.width) };
    plot.style.gridTemplateColumns = `repeat(${columns}, ${panelWidth}px)`;
    paintPanels();
  }

  function paintPanels() {
    if (!size) return;
    const ratio = devicePixelRatio || 1;
    for (const { canvas, matrix, peak } of panels) {
      Object.assign(canvas, { width: Math.round(size.width * ratio), height: Math.round(size.height * ratio) });
      Object.assign(canvas.style, { width: size.width + "px", height: size.height + "px" });
      const pen = canvas.getContext("2d");
      pen.imageSmoothingEnabled = figure.image.width > 100;
      pen.drawImage(source, 0, 0, canvas.width, canvas.height);
      if (hasWeights) paintWeights(pen, canvas, matrix, peak);
    }
  }

  const makeMark = (index, row, column) => ({ key: `${index}:${row},${column}`, index, row, column });
  const paintPins = () => { const pinned = pins.find(axis); panels.forEach(({ box }, index) => box.classList.toggle("is-pinned", pinned.includes(index))); };
  explore(plot, {
    find(x, y, event) {
      const index = panels.findIndex((panel) => panel.box.contains(event.target));
      if (index < 0) return null;
      const { canvas, matrix } = panels[index], cell = findCell(canvas, event, matrix.rows, matrix.columns);
      return cell && makeMark(index, ...cell);
    },
    describe({ index, row, column }) {
      const { matrix, canvas } = panels[index], box = canvas.getBoundingClientRect(), own = plot.getBoundingClientRect();
      return { value: formatDigits(matrix.values[row * matrix.columns + column]), title: figure.value_label,
        rows: [["caption", nameItem(axis, index)], ["region", `row ${row + 1}, column ${column + 1}`]],
        at: { x: box.left - own.left + (column + 0.5) / matrix.columns * box.width, y: box.top - own.top + (row + 0.5) / matrix.rows * box.height } };
    },
    highlight(mark) {
      panels.forEach(({ region, matrix }, index) => {
        region.hidden = index !== mark?.index;
        if (region.hidden) return;
        const width = size.width / matrix.columns, height = size.height / matrix.rows;
        Object.assign(region.style, { left: mark.column * width + "px", top: mark.row * height + "px", width: width + "px", height: height + "px" });
      });
    },
    first: () => makeMark(0, 0, 0),
    step({ index, row, column }, dx, dy) {
      const { matrix } = panels[index], next = [row + dy, column + dx];
      if (next[0] >= 0 && next[0] < matrix.rows && next[1] >= 0 && next[1] < matrix.columns) return makeMark(index, ...next);
      return dx && panels[index + dx] ? makeMark(index + dx, row, dx > 0 ? 0 : panels[index + dx].matrix.columns - 1) : null;
    },
    items: ({ index }) => [makeItem(axis, index)],
  }, pins);
  pins.follow(plot, () => pins.find(axis), paintPins);
  followWidth(plot, paint);
  return make("div", {}, make("div", { class: "controls" }, make("span", { class: "hint" }, `Each panel has its own scale, from dark to bright; below it: ${figure.value_label}.`),
    makeChoice("weights", [["shown", "shown"], ["hidden", "hidden"]], "shown", (value) => { hasWeights = value === "shown"; paintPanels(); })), plot);
}
