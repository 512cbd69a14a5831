// --- numbers as text. Those of the tables come as text with the report (`shown`), so that the terminal and the verdict
// say the same; here are those of axes, and of places that one points at. Raw numbers stay beside them in `data-value`.
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
  if (seconds < 59.95) return plain(seconds) + " s";
  const minutes = Math.floor(Math.round(seconds) / 60), rest = Math.round(seconds) % 60;
  if (minutes < 60) return minutes + " min" + (rest ? " " + rest + " s" : "");
  return whole(Math.floor(minutes / 60)) + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
}

// Ticks are round numbers: 5 ms, not 5.00 ms.
const lean = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

// A number stays on the line of its unit, and a p with its number.
const tight = (text) => text.replace(/(\d) (?=%|[kMGT]?B\b|s\b|ms\b|min\b|h\b)/g, "$1\u00a0")
  .replace(/(\bp )?([=<≤≥]) (?=\d)/g, (_, p, sign) => (p ? "p\u00a0" : "") + sign + "\u00a0");

// The metric. Shares between 0 and 1 are read more easily as per cent. On the curves it has the digits of the best mean.
const share = /(^|_)(accuracy|exact_match|f1|precision|recall)$/.test(metric.key);
const factor = share ? 100 : 1;
// What shrinks towards 0 does so by factors; shares and scores from 0 up do not, and 0 has no logarithm.
const byFactors = lower && !share;
const decimals = (/\.(\d+)/.exec(report.families.find((family) => exists(family.mean))?.shown.mean ?? "")?.[1] ?? "").length;

// Over the seeds where there are several; else over the test examples.
function interval(family) {
  if (exists(family.low) && exists(family.high)) return { low: family.low, high: family.high, over: "seeds" };
  const sampling = family.sampling;
  return sampling && exists(sampling.low) && exists(sampling.high) ? { ...sampling, over: "examples" } : null;
}

function quality(value) {
  if (!exists(value)) return NONE;
  const shown = value * factor;
  if (Math.abs(shown) >= 1e6) return scientific(shown, 3);
  const close = Math.abs(shown) < 0.5 * 10 ** -decimals && shown !== 0;
  return (close ? plain(shown, 2) : fixed(shown, decimals)) + (share ? " %" : "");
}

// The text of a difference, seen from the other side.
const turned = (text) => text.replace(/^[+−]/, (sign) => sign === "+" ? "−" : "+");
const short = (text, most) => [...text].length > most ? [...text].slice(0, Math.max(1, most - 1)).join("") + "…" : text;
const better = (a, b) => lower ? a < b : a > b;
const plural = (number, word) => number + " " + word + (number === 1 ? "" : "s");
const listed = (names) => names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);
