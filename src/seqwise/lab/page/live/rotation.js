// G3: a shift rotates each pair of entries of a sinusoidal code, by an angle that does not depend on the position.
import { count, dot, show } from "./numerics.js";
import { computeFrequency, encodePosition } from "./position-encodings.js";

const WIDTH = 16, MAX_POSITION = 100, SHIFTS = count(61), AXIS = 2.1;  // where the x axis ends, so that a circle looks almost round

const getPair = (position, pair) => encodePosition(position, WIDTH).slice(2 * pair, 2 * pair + 2);

// A rotation of the plane of (sine, cosine): sin(a + b) and cos(a + b) from sin a and cos a.
const rotate = ([sine, cosine], angle) => [sine * Math.cos(angle) + cosine * Math.sin(angle), cosine * Math.cos(angle) - sine * Math.sin(angle)];

const makeArrow = (name, [sine, cosine], role) => ({ name, x: [0, cosine], y: [0, sine], role });

// The unit disc as an interval around y = 0. Two points beside it fix the range of the axis.
function makeDisc() {
  const x = count(41).map((at) => -Math.cos(Math.PI * at / 40)), high = x.map((one) => Math.sqrt(Math.max(0, 1 - one ** 2)));
  return { name: "unit circle", x: [-AXIS, ...x, AXIS], y: [null, ...high, null], low: [null, ...high.map((one) => -one), null], high: [null, ...high, null] };
}

export const ROTATION = {
  id: "G3",
  title: `Shift a position by k: each of the ${WIDTH / 2} pairs of sine and cosine turns like the hand of a clock.`,
  controls: [
    { name: "position", label: "position p", kind: "range", min: 0, max: MAX_POSITION, step: 1, value: 7 },
    { name: "shift", label: "shift k", kind: "range", min: 0, max: 60, step: 1, value: 5 },
    { name: "pair", label: "pair of entries (1: fastest)", kind: "range", min: 1, max: WIDTH / 2, step: 1, value: 2 },
  ],
  compute({ position, shift, pair }) {
    const angle = shift * computeFrequency(pair - 1, WIDTH), before = getPair(position, pair - 1), code = encodePosition(position, WIDTH);
    return { angle, before, after: getPair(position + shift, pair - 1), rotated: rotate(before, angle),
      products: SHIFTS.map((k) => dot(code, encodePosition(position + k, WIDTH))) };
  },
  draw({ position, shift, pair }, { before, after, products }) {
    return [{
      kind: "LineChart", title: `Pair ${pair} of the codes of positions ${position} and ${position + shift}`, x_label: "cosine", y_label: "sine",
      series: [makeArrow(`PE(${position})`, before, "state"), makeArrow(`PE(${position + shift}) = R(${shift}) PE(${position})`, after), makeDisc()],
      note: "The angle between the two hands depends on the shift and the pair, not on the position: that is what makes a shift a linear map.",
    }, {
      kind: "LineChart", title: "Dot product of the codes of a position and of a shifted one", x_label: "shift k (tokens)", y_label: "PE(p) · PE(p + k)",
      series: [{ name: `from position ${position}`, x: SHIFTS, y: products }], references: [{ axis: "x", value: shift, label: "k" }],
      note: "Moving the position leaves this curve as it is: a rotation preserves dot products.",
    }];
  },
  describe({ shift, pair }, { angle, rotated, after }) {
    const list = (values) => `(${values.map((value) => show(value)).join(", ")})`;
    return `A shift of ${shift} turns pair ${pair} by ${show(angle * 180 / Math.PI)}°. Rotating the first code gives ${list(rotated)}; the code of the second is ${list(after)}.`;
  },
};
