// Matrices as images: whole device pixels per cell, so that cells have sharp edges.
import { NO_VALUE } from "./colours.js";

const MIN_CELL_WITH_GAP = 7;  // device pixels

// Returns the colour code of each cell of a decoded matrix.
export function encodeCells({ rows, columns, values }, colours) {
  const codes = new Uint8Array(values.length);
  for (let at = 0; at < values.length; at++) codes[at] = colours.code(values[at]);
  return { rows, columns, neutral: colours.neutral, codes };
}

// The row and the column of a matrix, drawn in an element, at the pointer; null outside.
export function findCell(element, event, rows, columns) {
  const box = element.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top) / box.height * rows), column = Math.floor((event.clientX - box.left) / box.width * columns);
  return row >= 0 && column >= 0 && row < rows && column < columns ? [row, column] : null;
}

// First and last cell of each pixel, and whether the pixel is the gap after a cell.
function divide(from, count, pixels) {
  const first = new Int32Array(pixels), last = new Int32Array(pixels), isGap = new Uint8Array(pixels);
  for (let at = 0; at < pixels; at++) {
    first[at] = from + Math.floor(count > pixels ? at * count / pixels : (at + 0.5) * count / pixels);
    last[at] = count > pixels ? from + Math.floor((at + 1) * count / pixels) - 1 : first[at];
  }
  if (pixels >= MIN_CELL_WITH_GAP * count) for (let at = 0; at < pixels - 1; at++) isGap[at] = first[at] === first[at + 1] ? 0 : 1;
  return { first, last, isGap };
}

// Paints a window of the cells; `view` is { top, bottom, left, right } in cells, without its last row and column. Where
// several cells share a pixel, it shows the one farthest from the neutral colour, so that single peaks stay visible.
export function paintCells(canvas, width, height, cells, view, colours) {
  const lookup = colours.lookup(), gap = colours.pixel(getComputedStyle(canvas).getPropertyValue("--card").trim());
  const ratio = window.devicePixelRatio || 1, { codes, columns, neutral } = cells;
  const numX = Math.max(1, Math.round(width * ratio)), numY = Math.max(1, Math.round(height * ratio));
  Object.assign(canvas, { width: numX, height: numY });
  Object.assign(canvas.style, { width: width + "px", height: height + "px" });
  const x = divide(view.left, view.right - view.left, numX), y = divide(view.top, view.bottom - view.top, numY);
  const image = new ImageData(numX, numY), pixels = new Uint32Array(image.data.buffer), line = new Uint32Array(numX);
  for (let row = 0; row < numY; row++) {
    if (y.isGap[row]) { pixels.fill(gap, row * numX, (row + 1) * numX); continue; }
    if (row === 0 || y.first[row] !== y.first[row - 1] || y.last[row] !== y.last[row - 1] || y.isGap[row - 1])
      for (let column = 0; column < numX; column++)
        line[column] = x.isGap[column] ? gap : lookup[findPeak(y.first[row], y.last[row], x.first[column], x.last[column])];
    pixels.set(line, row * numX);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);

  function findPeak(top, bottom, left, right) {
    if (top === bottom && left === right) return codes[top * columns + left];
    let peak = NO_VALUE, distance = -1;
    for (let r = top; r <= bottom; r++) {
      for (let at = r * columns + left, end = r * columns + right; at <= end; at++) {
        const code = codes[at], own = code > neutral ? code - neutral : neutral - code;
        if (code !== NO_VALUE && own > distance) { peak = code; distance = own; }
      }
    }
    return peak;
  }
}
