// --- numbers as text. Those of the tables come formatted with the report (`text`), so that the terminal and the verdict
// print the same; here are those of axes and tooltips. Unformatted numbers are in the attribute `data-value`.
const { report, title } = JSON.parse(document.getElementById("data").textContent);
const metric = report.metric, lower = metric.lower_is_better;
const DASH = "–";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const formatFixed = (value, decimals) => value.toLocaleString("en-GB",
  { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).replace(/^-/, "−");
const formatSuperscript = (power) => [...String(power)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻").join("");

function formatScientific(value, digits) {
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  return mantissa.replace("-", "−") + " × 10" + formatSuperscript(Number(power));
}

// Formats so many significant digits.
function formatDigits(value, digits = 3) {
  if (!isNumber(value)) return DASH;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return formatScientific(value, digits);
  return formatFixed(value, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

function formatScaled(value, steps, names, space = " ") {
  if (!isNumber(value)) return DASH;
  let at = 0;
  while (at < names.length - 1 && Math.abs(value) >= 999.5 * steps ** at) at++;
  const reduced = value / steps ** at;
  return (at === 0 && Number.isInteger(value) ? String(value) : formatDigits(reduced)) + (names[at] ? space + names[at] : "");
}

const formatCount = (value) => formatScaled(value, 1000, ["", "k", "M", "B", "T"]);
const formatBytes = (value) => formatScaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]);
const formatWhole = (value) => isNumber(value) ? formatFixed(value, 0) : DASH;

function formatDuration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds === 0) return "0 s";
  if (seconds < 9.995e-4) return formatDigits(seconds * 1e6) + " µs";
  if (seconds < 0.9995) return formatDigits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return formatDigits(seconds) + " s";
  const minutes = Math.floor(Math.round(seconds) / 60), rest = Math.round(seconds) % 60;
  if (minutes < 60) return minutes + " min" + (rest ? " " + rest + " s" : "");
  return formatWhole(Math.floor(minutes / 60)) + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
}

// Ticks are round numbers: 5 ms, not 5.00 ms.
const trimZeros = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

// Keeps a number on the line of its unit, and a p with its number.
const keepUnitsTogether = (text) => text.replace(/(\d) (?=%|[kMGT]?B\b|s\b|ms\b|min\b|h\b)/g, "$1\u00a0")
  .replace(/(\bp )?([=<≤≥]) (?=\d)/g, (_, p, sign) => (p ? "p\u00a0" : "") + sign + "\u00a0");

// The metric. Shares between 0 and 1 are shown in per cent. On the curves it has the digits of the best mean.
const isRatio = /(^|_)(accuracy|exact_match|f1|precision|recall)$/.test(metric.key);
const factor = isRatio ? 100 : 1;
// The smallest and the largest possible value, which no axis exceeds; as `get_bounds` in formatting.py.
const qualityBounds = isRatio ? [0, 1] : ["bleu", "chrf"].includes(metric.key) ? [0, 100] : [/(^|_)perplexity$/.test(metric.key) ? 1 : 0, Infinity];
// Errors and perplexities may have a logarithmic axis; shares and scores may be 0.
const allowsLog = lower && !isRatio;
const decimals = (/\.(\d+)/.exec(report.families.find((family) => isNumber(family.mean))?.text.mean ?? "")?.[1] ?? "").length;

// Returns the interval over the seeds, or with a single seed over the test examples.
function getInterval(family) {
  if (isNumber(family.low) && isNumber(family.high)) return { low: family.low, high: family.high, source: "seeds" };
  const sampling = family.sampling;
  return sampling && isNumber(sampling.low) && isNumber(sampling.high) ? { ...sampling, source: "examples" } : null;
}

function formatQuality(value) {
  if (!isNumber(value)) return DASH;
  const scaledValue = value * factor;
  if (Math.abs(scaledValue) >= 1e6) return formatScientific(scaledValue, 3);
  const roundsToZero = Math.abs(scaledValue) < 0.5 * 10 ** -decimals && scaledValue !== 0;
  return (roundsToZero ? formatDigits(scaledValue, 2) : formatFixed(scaledValue, decimals)) + (isRatio ? " %" : "");
}

// Changes the sign of a formatted difference.
const negate = (text) => text.replace(/^[+−]/, (sign) => sign === "+" ? "−" : "+");
const shorten = (text, limit) => [...text].length > limit ? [...text].slice(0, Math.max(1, limit - 1)).join("") + "…" : text;
const isBetter = (a, b) => lower ? a < b : a > b;
const formatPlural = (number, word) => number + " " + word + (number === 1 ? "" : "s");
const joinNames = (names) => names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);
