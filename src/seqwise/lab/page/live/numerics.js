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

export const multiply = (a, b) => a.map((row) => b[0].map((_, column) => sum(row.map((value, at) => value * b[at][column]))));
export const transpose = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));

// The largest eigenvalue of a symmetric positive semi-definite matrix, by Jacobi rotations until it is diagonal.
export function computeLargestEigenvalue(symmetric) {
  const a = symmetric.map((row) => [...row]), size = a.length;
  const measureRest = () => sum(a.map((row, i) => sum(row.map((value, j) => i === j ? 0 : Math.abs(value)))));
  const limit = 1e-15 * sum(a.map((row, i) => Math.abs(row[i])));
  for (let sweep = 0; sweep < 30 && measureRest() > limit; sweep++)
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) if (a[p][q] !== 0) rotate(a, p, q);
  return Math.max(...a.map((row, i) => row[i]));
}

// One rotation, which makes the entry (p, q) zero (Golub & Van Loan 2013, section 8.5.2).
function rotate(a, p, q) {
  const tau = (a[q][q] - a[p][p]) / (2 * a[p][q]), t = (tau < 0 ? -1 : 1) / (Math.abs(tau) + Math.hypot(1, tau));
  const c = 1 / Math.hypot(1, t), s = t * c;
  for (let k = 0; k < a.length; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
  for (let k = 0; k < a.length; k++) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
}

// The largest singular value of a matrix; entries are scaled so that their squares neither overflow nor vanish.
export function computeSpectralNorm(matrix) {
  const size = Math.max(...matrix.flat().map(Math.abs));
  if (size === 0) return 0;
  const scaled = matrix.map((row) => row.map((value) => value / size));
  return size * Math.sqrt(computeLargestEigenvalue(multiply(transpose(scaled), scaled)));
}
