// C6: a gradient of two entries, clipped by norm and by value. Clipping by norm keeps the direction.
const TINY = 1e-6;  // which PyTorch adds to the norm before it divides
const EXTENT = 5, WIDTH = 10;  // largest entry; where the x axis ends, so that a circle looks almost round
const NUM_POINTS = 41;  // of the boundary of a circle

const computeNorm = (vector) => Math.hypot(...vector);

// The cosine of the angle between two vectors; a vector of zeros has no direction.
function computeCosine(a, b) {
  const size = computeNorm(a) * computeNorm(b);
  return size > 0 ? a.reduce((sum, value, at) => sum + value * b[at], 0) / size : null;
}

const makeArrow = (name, [x, y], role) => ({ name, x: [0, x], y: [0, y], role });

// All vectors of a norm up to the threshold, as an interval around y = 0. Two points beside it fix the range of the axes.
function makeDisc(threshold) {
  const x = Array.from({ length: NUM_POINTS }, (_, at) => threshold * Math.cos(Math.PI * (1 - at / (NUM_POINTS - 1))));
  const high = x.map((one) => Math.sqrt(Math.max(0, threshold ** 2 - one ** 2)));
  return { name: "vectors whose norm is below the threshold", x: [-WIDTH, ...x, WIDTH],
    y: [null, ...high, null], low: [-EXTENT, ...high.map((one) => -one), null], high: [null, ...high, EXTENT] };
}

export const CLIPPING = {
  id: "C6",
  title: "Clip a gradient that has two entries, by norm and by value, at the same threshold.",
  controls: [
    { name: "first", label: "first entry", kind: "range", min: -EXTENT, max: EXTENT, step: 0.1, value: 4.5 },
    { name: "second", label: "second entry", kind: "range", min: -EXTENT, max: EXTENT, step: 0.1, value: 1.5 },
    { name: "threshold", label: "threshold", kind: "range", min: 0.1, max: EXTENT, step: 0.1, value: 2 },
  ],
  compute({ first, second, threshold }) {
    const gradient = [first, second], norm = computeNorm(gradient), factor = Math.min(1, threshold / (norm + TINY));
    const byNorm = gradient.map((entry) => factor * entry), byValue = gradient.map((entry) => Math.max(-threshold, Math.min(threshold, entry)));
    return {
      norm, by_norm: byNorm, by_value: byValue, norm_by_norm: computeNorm(byNorm), norm_by_value: computeNorm(byValue),
      cosine_by_norm: computeCosine(gradient, byNorm), cosine_by_value: computeCosine(gradient, byValue),
    };
  },
  draw({ first, second, threshold }, { by_norm, by_value }) {
    const series = [makeArrow("gradient before clipping", [first, second], "state"), makeArrow("clipped by norm: shortened along its line", by_norm),
      makeArrow("clipped by value: each entry by itself", by_value)];
    return [{
      kind: "LineChart", title: "A gradient before and after clipping", x_label: "first entry", y_label: "second entry",
      series: [...series, makeDisc(threshold)],
      references: ["x", "y"].flatMap((axis) => [threshold, -threshold].map((value) => ({ axis, value, label: axis === "x" && value > 0 ? "threshold" : "" }))),
      note: "Clipping by norm keeps the vector on its line and inside the circle; clipping by value moves it into the square and may turn it.",
    }];
  },
  describe(values, { norm, norm_by_norm, norm_by_value, cosine_by_norm, cosine_by_value }) {
    const show = (value) => value === null ? "undefined" : value.toFixed(3);
    return `Norm ${show(norm)} before; by norm ${show(norm_by_norm)} with cosine ${show(cosine_by_norm)} to the gradient; ` +
      `by value ${show(norm_by_value)} with cosine ${show(cosine_by_value)}.`;
  },
};
