// --- numbers as text. Raw numbers stay beside them in `data-value`.
const { report, title } = JSON.parse(document.getElementById("data").textContent);
const metric = report.metric, lower = metric.lower_is_better;
const NONE = "–";
const exists = (value) => typeof value === "number" && Number.isFinite(value);
const fixed = (value, decimals) => value.toLocaleString("en-GB",
  { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).replace(/^-/, "−");
const superscript = (power) => [...String(power)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻").join("");

function scientific(value, digits) {
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  return mantissa.replace("-", "−") + " × 10" + superscript(Number(power));
}

// So many significant digits, in the shortest way a person would write them.
function plain(value, digits = 3) {
  if (!exists(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return scientific(value, digits);
  return fixed(value, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

// The same without zeros at the end: rates and settings, where they say nothing.
function bare(value) {
  if (!exists(value)) return NONE;
  const rounded = Number(value.toPrecision(3)), size = Math.abs(rounded);
  if (size >= 1e7 || (size < 1e-5 && size > 0)) return scientific(value, 2).replace(/\.0 /, " ");
  return rounded.toLocaleString("en-GB", { maximumFractionDigits: 9 }).replace(/^-/, "−");
}

function scaled(value, steps, names, space = " ") {
  if (!exists(value)) return NONE;
  let at = 0;
  while (at < names.length - 1 && Math.abs(value) >= 999.5 * steps ** at) at++;
  const reduced = value / steps ** at;
  return (at === 0 && Number.isInteger(value) ? String(value) : plain(reduced)) + (names[at] ? space + names[at] : "");
}

const count = (value) => scaled(value, 1000, ["", "k", "M", "B", "T"]);
const bytes = (value) => scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]);
const whole = (value) => exists(value) ? fixed(value, 0) : NONE;

function duration(seconds) {
  if (!exists(seconds)) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 9.995e-4) return plain(seconds * 1e6) + " µs";
  if (seconds < 0.9995) return plain(seconds * 1e3) + " ms";
  if (seconds < 119.5) return plain(seconds) + " s";
  const minutes = Math.floor(Math.round(seconds) / 60), rest = Math.round(seconds) % 60;
  if (minutes < 120) return minutes + " min" + (rest ? " " + rest + " s" : "");
  return whole(Math.floor(minutes / 60)) + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
}

// Ticks are round numbers: 5 ms, not 5.00 ms.
const lean = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

// A number stays on the line of its unit, and a p with its number.
const tight = (text) => text.replace(/(\d) (?=%|[kMGT]?B\b|s\b|ms\b|min\b|h\b)/g, "$1\u00a0")
  .replace(/(\bp )?([=<≤≥]) (?=\d)/g, (_, p, sign) => (p ? "p\u00a0" : "") + sign + "\u00a0");

const chance = (p) => !exists(p) ? NONE : p < 0.001 ? "< 0.001" : fixed(p, p < 0.1 ? 3 : 2);

// The metric. Shares between 0 and 1 are read more easily as per cent. Digits follow the width of an interval: two of
// it where it begins with 1, 2 or 3, otherwise one. A column keeps to one number of decimals, that of the middle family.
const share = /(^|_)(accuracy|exact_match|f1|precision|recall)$/.test(metric.key);
const factor = share ? 100 : 1;

function decimalsFor(half, size) {
  const place = Math.floor(Math.log10(half > 0 ? half : Math.abs(size) / 100 || 1));
  const wanted = half > 0 ? -place + (half / 10 ** place < 3.55 ? 1 : 0) : -place;
  return Math.max(0, Math.min(8, wanted));
}

function halfOf(family) {
  const range = interval(family);
  return range ? factor * (range.high - range.low) / 2 : 0;
}

const middle = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor((numbers.length - 1) / 2)];
const decimals = (() => {
  const some = report.families.filter((family) => exists(family.mean));
  const halves = some.map(halfOf).filter((half) => half > 0);
  return decimalsFor(halves.length ? middle(halves) : 0, factor * (middle(some.map((family) => Math.abs(family.mean))) ?? 1));
})();

// Over the seeds where there are several; else over the test examples.
function interval(family) {
  if (exists(family.low) && exists(family.high)) return { low: family.low, high: family.high, over: "seeds" };
  const sampling = family.sampling;
  return sampling && exists(sampling.low) && exists(sampling.high) ? { ...sampling, over: "examples" } : null;
}

function quality(value, more = 0, digits = decimals) {
  if (!exists(value)) return NONE;
  const shown = value * factor;
  if (Math.abs(shown) >= 1e6) return scientific(shown, 3);
  const close = Math.abs(shown) < 0.5 * 10 ** -digits && shown !== 0;
  return (close ? plain(shown, 2) : fixed(shown, Math.min(9, digits + more))) + (share ? " %" : "");
}

// An interval; ends that are the same but for rounding say nothing as numbers.
const alike = (low, high) => high - low <= 1e-9 * Math.abs(high);
function between(low, high, over, more = 0) {
  if (!exists(low) || !exists(high)) return NONE;
  if (alike(low, high)) return `all ${over} alike`;
  const width = decimalsFor(factor * (high - low) / 2, 1);  // far narrower than the others: "100 to 100 %" would say nothing
  const digits = quality(low, more) === quality(high, more) ? Math.max(decimals, width) : decimals;
  return quality(low, more, digits).replace(" %", "") + " to " + quality(high, more, digits);
}

const signed = (value) => (value > 0 ? "+" : "") + quality(value).replace(" %", "");
// The end of an interval, with the digits of its middle.
const bound = (value) => Math.abs(value * factor) >= 1e6 ? signed(value)
  : (value > 0 ? "+" : "") + fixed(value * factor, decimals);
const short = (text, most) => [...text].length > most ? [...text].slice(0, Math.max(1, most - 1)).join("") + "…" : text;
const better = (a, b) => lower ? a < b : a > b;
const plural = (number, word) => number + " " + word + (number === 1 ? "" : "s");
const listed = (names) => names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);
