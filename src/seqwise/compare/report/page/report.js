// The report that the page shows, and what its parts ask of it. Formatted numbers come with it (`text`), so that the
// terminal and the verdict print the same.
import { DASH, isNumber } from "../../../page/components/numbers.js";
import { findExtent } from "../../../page/components/scales.js";

const data = JSON.parse(document.getElementById("data").textContent);
export const report = data.report;
export const title = data.title;

export const families = report.families;
export const finished = families.filter((family) => isNumber(family.mean));
export const byName = new Map(families.map((family) => [family.name, family]));
export const verdict = report.verdict ?? {};
export const rules = report.rules ?? {};
export const seeds = rules.seeds ?? [];
export const hasSingleSeed = seeds.length === 1;

const styles = new Map(families.map((family, at) => [family.name, data.styles[at]]));
export const getStyle = (name) => styles.get(name);

// Returns the interval over the seeds, or with a single seed over the test examples.
export function getInterval(family) {
  if (isNumber(family.low) && isNumber(family.high)) return { low: family.low, high: family.high, source: "seeds" };
  const sampling = family.sampling;
  return sampling && isNumber(sampling.low) && isNumber(sampling.high) ? { ...sampling, source: "examples" } : null;
}

// An n-gram model is not trained: it has no speed that could be compared.
export const getSpeed = (family) => family.is_baseline ? null : family.training?.tokens_per_second;

// The lowest and highest latency of the rounds; null where both have the same text.
export const getLatencyRange = (family) => family.text.latency_range === DASH ? null : findExtent(family.latencies);
