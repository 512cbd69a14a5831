// The values of lines at one position of the x axis, and the labels of that axis.
import { makeNamedChip } from "./elements.js";
import { formatCount, formatDigits, formatDuration, isNumber, trimZeros } from "./numbers.js";
import { findPosition, findValue } from "./paths.js";
import { nameItem } from "./pins.js";

export const MAX_TIP_ROWS = 12;  // lines in a tooltip
const FORMATS = { count: formatCount, duration: formatDuration };  // of the x axis, by the `x_format` of a figure

// Long times are round in minutes or hours, not in hundreds of seconds.
export function makeTickLabels(kind, x) {
  if (!FORMATS[kind]) return {};
  const unit = x.log && x.maximum / x.minimum > 1000 ? 1 : x.maximum > 7200 ? 3600 : x.maximum > 120 ? 60 : 1;
  return { x: (ticks) => ticks.map((tick) => trimZeros(FORMATS[kind](tick))), xUnit: kind === "duration" ? unit : 1 };
}

export function createReader(figure, lines, xAxis) {
  const all = Float64Array.from(new Set(lines.flatMap((line) => line.x.filter(isNumber)))).sort();
  const name = (x) => xAxis?.names[x] !== undefined ? nameItem(xAxis, x) : (FORMATS[figure.x_format] ?? ((value) => trimZeros(formatDigits(value, 4))))(x);
  const describeValue = ({ line, value, index }) => {
    const low = line.low?.[index], high = line.high?.[index];
    const interval = isNumber(low) && isNumber(high) ? ` (${formatDigits(low)} to ${formatDigits(high)})` : "";
    return [makeNamedChip(line.style, line.name), (index < 0 ? "≈ " : "") + formatDigits(value) + interval];
  };
  return {
    // The positions of all points that an axis can show.
    list: (isLog) => isLog ? all.filter((x) => x > 0) : all,
    findNearest(positions, x) {
      const at = findPosition(positions, x);
      return at + 1 < positions.length && positions[at + 1] - x < x - positions[at] ? at + 1 : at;
    },
    read: (shown, x) => shown.map((line) => ({ line, ...findValue(line, x) })).filter(({ value }) => isNumber(value)),
    describe: (x, values) => ({ title: `${figure.x_label}: ${name(x)}`, rows: values.slice(0, MAX_TIP_ROWS).map(describeValue),
      text: values.length === 0 ? "no value" : values.length > MAX_TIP_ROWS ? `and ${values.length - MAX_TIP_ROWS} more` : "" }),
  };
}
