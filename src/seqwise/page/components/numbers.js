// Numbers and tokens as text.
export const DASH = "–";
export const clamp = (value, from, to) => Math.max(from, Math.min(to, value));
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const formatters = [];  // by the number of decimals; creating one takes longer than using it
export function formatFixed(value, decimals) {
  formatters[decimals] ??= new Intl.NumberFormat("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return formatters[decimals].format(value).replace(/^-/, "−");
}
const formatSuperscript = (power) => [...String(power)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻").join("");

export function formatScientific(value, digits) {
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  return mantissa.replace("-", "−") + " × 10" + formatSuperscript(Number(power));
}

// Formats so many significant digits.
export function formatDigits(value, digits = 3) {
  if (!isNumber(value)) return DASH;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return formatScientific(value, digits);
  return formatFixed(value, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

// Returns a function that formats the values of a list: as whole numbers if all are, else with three digits.
export function createFormat(values) {
  const areWhole = values.every((value) => !isNumber(value) || Number.isInteger(value) && Math.abs(value) < 1e6);
  return (value) => isNumber(value) ? areWhole ? formatWhole(value) : formatDigits(value) : "no value";
}

// A value that is known only to within half a step, such as one of a quantised matrix.
export function formatRounded(value, step) {
  const half = step / 2, decimals = Math.max(0, -Math.floor(Math.log10(half)));
  return (decimals > 9 ? formatDigits(value) : formatFixed(value, decimals)) + " ± " + formatDigits(half, 1);
}

function formatScaled(value, steps, names, space = " ") {
  if (!isNumber(value)) return DASH;
  let at = 0;
  while (at < names.length - 1 && Math.abs(value) >= 999.5 * steps ** at) at++;
  const reduced = value / steps ** at;
  return (at === 0 && Number.isInteger(value) ? String(value) : formatDigits(reduced)) + (names[at] ? space + names[at] : "");
}

export const formatCount = (value) => formatScaled(value, 1000, ["", "k", "M", "B", "T"]);
export const formatBytes = (value) => formatScaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]);
export const formatWhole = (value) => isNumber(value) ? formatFixed(value, 0) : DASH;

export function formatDuration(seconds) {
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
export const trimZeros = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

// Keeps a number on the line of its unit, and a p with its number.
export const keepUnitsTogether = (text) => text.replace(/(\d) (?=%|[kMGT]?B\b|s\b|ms\b|min\b|h\b)/g, "$1\u00a0")
  .replace(/(\bp )?([=<≤≥]) (?=\d)/g, (_, p, sign) => (p ? "p\u00a0" : "") + sign + "\u00a0");

export const shorten = (text, limit) => [...text].length > limit ? [...text].slice(0, Math.max(1, limit - 1)).join("") + "…" : text;
export const formatPlural = (number, word) => formatWhole(number) + " " + word + (number === 1 ? "" : "s");
export const joinNames = (names) => names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);

// A token as a label: white space becomes visible, unless it only separates words.
export function showToken(token) {
  if (token === "") return "∅";
  const visible = token.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥");
  return visible.trim() === "" ? visible.replace(/ /g, "␣") : visible.trim();
}
