// The report that a page shows, and what its parts ask of it. Formatted numbers come with it (`text`), so that the
// terminal and the verdict print the same.
import { DASH, isNumber } from "../../../page/components/numbers.js";
import { findExtent } from "../../../page/components/scales.js";
import { createMetric } from "./metric.js";

// What the reader has chosen; a report that replaces another one takes it over.
export const createChoices = () => ({ hidden: new Set(), curves: { x: "linear", y: null, seeds: true }, price: null });  // `hidden`: families switched off in a legend

// `data` has the entries of report.json as `report`, a `title`, and the `styles` of the families.
export function createReport({ report, title, styles }, choices = createChoices()) {
  const { families, verdict, rules } = report, finished = families.filter((family) => isNumber(family.mean));
  const seeds = rules?.seeds ?? [], stylesByName = new Map(families.map((family, at) => [family.name, styles[at]]));
  return {
    ...report, title, finished, seeds, choices, verdict: verdict ?? {}, rules: rules ?? {}, hasSingleSeed: seeds.length === 1,
    byName: new Map(families.map((family) => [family.name, family])),
    metric: createMetric(report.metric, finished),
    getStyle: (name) => stylesByName.get(name),
  };
}

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
