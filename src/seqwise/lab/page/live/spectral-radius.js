// C2: the norm of Wⁿ for a triangular matrix, which is not normal, and for a symmetric one of the same spectral radius.
// Names and order of the lines are those of the figure that Python draws, so that both have the same colours.
import { computeLargestEigenvalue, computeSpectralNorm, count, multiply, show } from "./numerics.js";

const makeMatrix = (size, get) => count(size).map((i) => count(size).map((j) => get(i, j)));

// All eigenvalues are `radius`, the entries of the diagonal.
const makeTriangular = (units, radius, coupling) => makeMatrix(units, (i, j) => i === j ? radius : j === i + 1 ? coupling : 0);

// The symmetric part of the triangular matrix, scaled to the same spectral radius.
function makeSymmetric(units, radius, coupling) {
  const part = makeMatrix(units, (i, j) => i === j ? radius : Math.abs(i - j) === 1 ? coupling / 2 : 0);
  const factor = radius / Math.sqrt(computeLargestEigenvalue(multiply(part, part)));
  return part.map((row) => row.map((value) => factor * value));
}

function computeNorms(matrix, steps) {
  const norms = [];
  for (let power = matrix; norms.length < steps; power = multiply(matrix, power)) norms.push(computeSpectralNorm(power));
  return norms;
}

export const SPECTRAL_RADIUS = {
  id: "C2",
  title: "A gradient that passes n steps of a linear RNN grows at most by the norm of Wⁿ. Choose the matrix W.",
  controls: [
    { name: "radius", label: "spectral radius ρ", kind: "range", min: 0.5, max: 1.1, step: 0.01, value: 0.9 },
    { name: "coupling", label: "coupling above the diagonal", kind: "range", min: 0, max: 1, step: 0.05, value: 0.5 },
    { name: "units", label: "size of the matrix", kind: "range", min: 2, max: 12, step: 1, value: 10 },
    { name: "steps", label: "largest power n", kind: "range", min: 10, max: 300, step: 10, value: 200 },
  ],
  compute({ radius, coupling, units, steps }) {
    const norms = computeNorms(makeTriangular(units, radius, coupling), steps), largest = Math.max(...norms);
    return {
      norms_non_normal: norms, norms_normal: computeNorms(makeSymmetric(units, radius, coupling), steps), powers: count(steps, 1).map((n) => radius ** n),
      largest, step_of_largest: norms.indexOf(largest) + 1,
    };
  },
  draw({ radius, coupling, steps }, { norms_non_normal, norms_normal, powers }) {
    const x = count(steps, 1);
    return [{
      kind: "LineChart", title: `Norm of Wⁿ for two matrices of spectral radius ${radius}`, x_label: "power n (time steps)",
      y_label: "largest singular value of Wⁿ", y_log: true, references: [{ axis: "y", value: 1, label: "norm 1" }],
      series: [{ name: "normal W", x, y: norms_normal }, { name: coupling ? "non-normal W" : "diagonal W", x, y: norms_non_normal }, { name: "ρⁿ", x, y: powers }],
      note: "The normal W is symmetric and follows ρⁿ at every n. " + (coupling ? "The non-normal W is triangular: the coupling decides how far it exceeds ρⁿ." :
        "Without coupling the triangular W is diagonal, so normal: it follows ρⁿ too."),
    }];
  },
  describe({ coupling, steps }, { largest, step_of_largest, norms_non_normal, powers }) {
    const last = `after ${steps} steps ‖Wⁿ‖ is ${show(norms_non_normal.at(-1))} and ρⁿ ${show(powers.at(-1))}.`;
    return `The powers of the ${coupling ? "non-normal" : "diagonal"} W reach a norm of ${show(largest)} at n = ${step_of_largest}; ${last}`;
  },
};
