// Metrics as text, the same on all pages, and as in the report of a comparison.
import { formatDigits } from "../../page/components/numbers.js";

const NAMES = { bleu: "BLEU", span_f1: "span F1", mse: "MSE" };
const RATIO = /(^|_)(accuracy|f1|exact_match|precision|recall)$/;  // shares from 0 to 1 are shown as percentages

export const nameMetric = (metric) => NAMES[metric] ?? metric.replaceAll("_", " ");
export const formatMetric = (metric, value) => RATIO.test(metric) ? formatDigits(100 * value, 4) + " %" : formatDigits(value, 4);
