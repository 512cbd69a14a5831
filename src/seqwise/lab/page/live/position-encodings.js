// G2: sinusoidal position encodings and the distances between them.
import { count, show } from "./numerics.js";

const BASE = 10000;  // longest wavelength / 2π (Vaswani et al. 2017, section 3.5)
export const computeFrequency = (pair, width) => BASE ** (-2 * pair / width);

// As `seqwise.layers.SinusoidalPositions`: sine and cosine in turns.
export const encodePosition = (position, width) => count(width).map((entry) => {
  const angle = position * computeFrequency(Math.floor(entry / 2), width);
  return entry % 2 ? Math.cos(angle) : Math.sin(angle);
});

const computeDistance = (a, b) => Math.hypot(...a.map((value, at) => value - b[at]));

export const POSITION_ENCODINGS = {
  id: "G2",
  title: "Sinusoidal codes of the first positions, and how far two positions are apart.",
  controls: [
    { name: "width", label: "width D of a code", kind: "range", min: 2, max: 64, step: 2, value: 24 },
    { name: "length", label: "number of positions", kind: "range", min: 4, max: 64, step: 1, value: 32 },
    { name: "first", label: "first position", kind: "range", min: 0, max: 63, step: 1, value: 10 },
    { name: "second", label: "second position", kind: "range", min: 0, max: 63, step: 1, value: 20 },
  ],
  compute({ width, length, first, second }) {
    const codes = count(length).map((position) => encodePosition(position, width)), p = Math.min(first, length - 1), q = Math.min(second, length - 1);
    const distances = codes.map((code) => computeDistance(code, codes[p])), others = distances.filter((_, at) => at !== p), smallest = Math.min(...others);
    return { codes, distances, first: p, second: q, distance: distances[q], smallest };
  },
  draw({ width, length }, { codes, distances, first, second }) {
    const positions = count(length), entries = count(width).map((entry) => (entry % 2 ? "cos ω" : "sin ω") + (Math.floor(entry / 2) + 1));
    return [{
      kind: "Heatmap", title: `Codes of ${length} positions with ${width} entries`, values: codes, rows: positions.map(String), columns: entries,
      row_label: "position (tokens)", column_label: "entry of the code", value_label: "sine or cosine", scale: "diverging", low: -1, high: 1,
      note: "The first entries change fast and separate neighbours; the last ones change slowly and separate distant positions.",
    }, {
      kind: "LineChart", title: `Distance of every position from position ${first}`, x_label: "position (tokens)", y_label: `‖PE(p) − PE(${first})‖`,
      series: [{ name: `distance from position ${first}`, x: positions, y: distances }],
      references: [{ axis: "x", value: first, label: "first" }, { axis: "x", value: second, label: "second" }],
      note: "The distance depends on the shift alone, so the curve is the same on both sides. Only the position itself has distance 0.",
    }];
  },
  describe: (values, { first, second, distance, smallest }) => `The codes of positions ${first} and ${second} are ${show(distance)} apart; ` +
    `the nearest other code to position ${first} is ${show(smallest)} away.`,
};
