// What several live figures compute with.
import { formatDigits } from "../../../page/components/numbers.js";

export const count = (length, first = 0) => Array.from({ length }, (_, at) => first + at);
export const interpolate = (from, to, length) => count(length).map((at) => from + (to - from) * at / (length - 1));
export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const dot = (a, b) => a.reduce((total, value, at) => total + value * b[at], 0);
export const sigmoid = (a) => 1 / (1 + Math.exp(-a));
export const show = (value, digits = 3) => value === 0 ? "0" : formatDigits(value, digits);

export function softmax(scores) {
  const largest = Math.max(...scores), exponentials = scores.map((score) => Math.exp(score - largest)), total = sum(exponentials);
  return exponentials.map((one) => one / total);
}

// −Σ p log q in nats, where 0 log 0 = 0; the entropy of p if there is no q.
export const computeCrossEntropy = (p, q = p) => -sum(p.map((one, at) => one > 0 ? one * Math.log(q[at]) : 0));

// A linear congruential generator (Numerical Recipes, "quick and dirty"): the same numbers in every language.
export function createRandom(seed) {
  let state = seed >>> 0;
  return () => (state = (Math.imul(1664525, state) + 1013904223) >>> 0) / 2 ** 32;
}

// Normal random numbers of mean 0 and variance 1 (Box & Muller 1958). The first numbers of similar seeds are similar, so they are dropped.
export function createNormal(seed) {
  const random = createRandom(seed);
  for (let at = 0; at < 8; at++) random();
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

export const drawNormal = (seed, rows, columns) => {
  const next = createNormal(seed);
  return count(rows).map(() => count(columns).map(next));
};

// Plain loops, since some figures multiply and rotate matrices hundreds of times per movement of a control.
export const multiply = (a, b) => a.map((row) => {
  const product = new Array(b[0].length).fill(0);
  for (let k = 0; k < b.length; k++) for (let j = 0; j < product.length; j++) product[j] += row[k] * b[k][j];
  return product;
});
export const transpose = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));

// The largest eigenvalue of a symmetric positive semi-definite matrix, by Jacobi rotations until it is almost diagonal: its error
// is at most the sum of the other entries.
export function computeLargestEigenvalue(symmetric) {
  const a = symmetric.map((row) => [...row]), size = a.length, limit = 1e-10 * sum(a.map((row, i) => row[i]));
  for (let sweep = 0, rest = Infinity; sweep < 30 && rest > limit; sweep++) {
    rest = 0;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) {
      rest += 2 * Math.abs(a[p][q]);
      if (a[p][q] !== 0) rotate(a, p, q);
    }
  }
  return Math.max(...a.map((row, i) => row[i]));
}

// One rotation, which makes the entry (p, q) zero (Golub & Van Loan 2013, section 8.5.2).
function rotate(a, p, q) {
  const tau = (a[q][q] - a[p][p]) / (2 * a[p][q]), t = (tau < 0 ? -1 : 1) / (Math.abs(tau) + Math.sqrt(1 + tau * tau));
  const c = 1 / Math.sqrt(1 + t * t), s = t * c, rowP = a[p], rowQ = a[q];
  for (const row of a) {
    const first = row[p], second = row[q];
    row[p] = c * first - s * second;
    row[q] = s * first + c * second;
  }
  for (let k = 0; k < a.length; k++) {
    const first = rowP[k], second = rowQ[k];
    rowP[k] = c * first - s * second;
    rowQ[k] = s * first + c * second;
  }
}

// The largest singular value of a matrix; entries are scaled so that their squares neither overflow nor vanish.
export function computeSpectralNorm(matrix) {
  const size = Math.max(...matrix.flat().map(Math.abs));
  if (size === 0) return 0;
  const scaled = matrix.map((row) => row.map((value) => value / size));
  return size * Math.sqrt(computeLargestEigenvalue(multiply(transpose(scaled), scaled)));
}
