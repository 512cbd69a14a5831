// The metric that ranks the families: its text on axes and in tips, and its axis. Shares are shown in per cent.
import { DASH, formatDigits, formatFixed, formatScientific, isNumber } from "../../../page/components/numbers.js";
import { addMargins, findExtent, formatTicks, makeScale } from "../../../page/components/scales.js";

// Returns the metric of a report with what depends on it. `finished` are the families that have a mean, best first.
export function createMetric(metric, finished) {
  const lower = metric.lower_is_better;
  const isRatio = /(^|_)(accuracy|exact_match|f1|precision|recall)$/.test(metric.key);
  // Errors and perplexities may have a logarithmic axis; shares and scores may be 0.
  const allowsLog = lower && !isRatio;
  // The smallest and the largest possible value, which no axis exceeds; as `get_bounds` in formatting.py.
  const metricBounds = isRatio ? [0, 1] : ["bleu", "chrf"].includes(metric.key) ? [0, 100] : [/(^|_)perplexity$/.test(metric.key) ? 1 : 0, Infinity];
  const decimals = (/\.(\d+)/.exec(finished[0]?.text.mean ?? "")?.[1] ?? (finished.length ? "" : "00")).length;  // of the best mean

  return {
    ...metric, split: metric.split ?? "test", lower, isRatio, allowsLog,
    label: metric.name + (lower ? " ↓ lower is better" : " ↑ higher is better"),
    isBetter: (a, b) => lower ? a < b : a > b,
    format(value) {
      if (!isNumber(value)) return DASH;
      const scaledValue = isRatio ? 100 * value : value;
      if (Math.abs(scaledValue) >= 1e6) return formatScientific(scaledValue, 3);
      const roundsToZero = Math.abs(scaledValue) < 0.5 * 10 ** -decimals && scaledValue !== 0;
      return (roundsToZero ? formatDigits(scaledValue, 2) : formatFixed(scaledValue, decimals)) + (isRatio ? " %" : "");
    },
    formatTicks: (ticks) => isRatio ? formatTicks(ticks.map((tick) => tick * 100)).map((text) => text + " %") : formatTicks(ticks),
    // The scale of an axis for the metric, with margins that end at its bounds.
    makeScale(numbers, start, end, log, margin = 0.06) {
      const [minimum, maximum] = findExtent(numbers), [low, high] = findExtent(addMargins(numbers, log, margin));
      const bounds = [Math.min(metricBounds[0], minimum), Math.max(metricBounds[1], maximum)];
      return makeScale(minimum < maximum ? [Math.max(low, bounds[0]), Math.min(high, bounds[1])] : numbers, start, end, log, bounds);
    },
    // Whether the values differ so much that a logarithmic axis shows them better.
    needsLog(numbers, ratio) {
      const [minimum, maximum] = findExtent(numbers);
      return allowsLog && minimum > 0 && maximum / minimum > ratio;
    },
  };
}
