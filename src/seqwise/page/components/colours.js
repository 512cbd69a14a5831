// Colour scales, which have one set of colours for light and one for dark pages.
import { make } from "./elements.js";
import { isNumber } from "./numbers.js";
import { followMedia, formatTicks, makeScale } from "./scales.js";

const darkMode = matchMedia("screen and (prefers-color-scheme: dark)");  // on paper, pages are light
const NUM_CODES = 255;  // colours of a scale; the code after them means that there is no value
export const NO_VALUE = NUM_CODES;

// Calls `redraw` when the page changes between light and dark, for as long as the element is part of the page.
export const followTheme = (element, redraw) => followMedia(darkMode, element, redraw);

const parseColour = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
const makePixel = ([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
const computeLuminance = (colour) => {
  const [red, green, blue] = colour.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

function interpolate(stops) {
  const parsed = stops.map(parseColour);
  return Array.from({ length: NUM_CODES }, (_, code) => {
    const position = code / (NUM_CODES - 1) * (parsed.length - 1), at = Math.min(parsed.length - 2, Math.floor(position));
    return parsed[at].map((part, channel) => Math.round(part + (parsed[at + 1][channel] - part) * (position - at)));
  });
}

// `scales` are those of the page's palette: a pair of light and dark stops per role and for "diverging".
export function createColours(scales, { scale: kind, role, low, high: highest }) {
  const high = highest > low ? highest : low + (Math.abs(low) / 10 || 1);  // of values that are all equal
  const pair = kind === "diverging" ? scales.diverging : scales[role] ?? scales[""];
  const themes = pair.map(interpolate);
  const colours = () => themes[darkMode.matches ? 1 : 0];
  const span = high - low;
  const factor = span > 0 ? (NUM_CODES - 1) / span : 0;
  const code = (value) => {
    const position = (value - low) * factor;
    return position !== position ? NO_VALUE : position <= 0 ? 0 : position >= NUM_CODES - 1 ? NUM_CODES - 1 : Math.round(position);
  };
  return {
    low, high, code, isDiverging: kind === "diverging", neutral: kind === "diverging" ? (NUM_CODES - 1) / 2 : 0,
    css: (value) => isNumber(value) ? `rgb(${colours()[code(value)].join(" ")})` : "transparent",
    // Black or white, whichever can be read on the colour of a value.
    ink: (value) => !isNumber(value) ? "var(--grey)" : computeLuminance(colours()[code(value)]) > 0.179 ? "#000000" : "#ffffff",
    gradient: () => `linear-gradient(to right, ${pair[darkMode.matches ? 1 : 0].join(", ")})`,
    // Pixels by code, for an image in memory: a transparent one where there is no value.
    lookup() {
      const table = new Uint32Array(NUM_CODES + 1);
      colours().forEach((colour, at) => { table[at] = makePixel(colour); });
      return table;
    },
    pixel: (text) => makePixel(parseColour(text)),
  };
}

// A bar with the colours of a scale and some of its values.
export function makeColourBar(colours, label, hasMissing = false) {
  const bar = make("i", { class: "gradient" });
  const at = makeScale([colours.low, colours.high], 0, 100), ticks = at.ticks(4);
  const labels = formatTicks(ticks).map((text, number) => {
    const tick = make("span", {}, text);
    tick.style.left = at(ticks[number]) + "%";
    return tick;
  });
  const paint = () => { bar.style.backgroundImage = colours.gradient(); };
  paint();
  followTheme(bar, paint);
  return make("div", { class: "colour-bar" }, make("span", { class: "what" }, label),
    make("div", { class: "bar-and-ticks" }, bar, make("div", { class: "ticks", "aria-hidden": "true" }, ...labels)),
    hasMissing && make("span", { class: "missing" }, make("i", { class: "hatched" }), "no value"));
}
