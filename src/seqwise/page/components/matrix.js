// Matrices and images as `packing.py` writes them.
import { inflate } from "./inflate.js";

const readBytes = (text, size) => inflate(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)), size);

// The numbers of all half-precision floats, by their bits.
let halves = null;
function getHalves() {
  halves ??= Float32Array.from({ length: 65536 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * fraction / 1024;
  });
  return halves;
}

function decodeHalves(bytes, exponent) {
  const count = bytes.length / 2, values = new Float32Array(count), table = getHalves(), factor = 2 ** exponent;
  for (let i = 0; i < count; i++) values[i] = table[bytes[i] | bytes[count + i] << 8] * factor;
  return values;
}

function decodeBytes(bytes, low, high) {
  const table = Float32Array.from({ length: 256 }, (_, code) => code === 255 ? NaN : low + code / 254 * (high - low));
  const values = new Float32Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) values[i] = table[bytes[i]];
  return values;
}

// Returns { rows, columns, values, block, step }. A value stands for `block` rows and columns of the original matrix and
// is known to within half a `step`; 0 means three significant digits or more.
export function decodeMatrix(packed) {
  if (Array.isArray(packed)) {
    const values = Float64Array.from(packed.flat(), (value) => value ?? NaN);
    return { rows: packed.length, columns: packed[0]?.length ?? 0, values, block: [1, 1], step: 0 };
  }
  const [rows, columns] = packed.shape, isHalf = packed.code === "half";
  const bytes = readBytes(packed.codes, rows * columns * (isHalf ? 2 : 1));
  return isHalf ? { rows, columns, values: decodeHalves(bytes, packed.exponent), block: packed.block, step: 0 }
    : { rows, columns, values: decodeBytes(bytes, packed.low, packed.high), block: packed.block, step: (packed.high - packed.low) / 254 };
}

function decodeImage({ width, height, codes }) {
  const bytes = readBytes(codes, 3 * width * height), pixels = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < width * height; i++) {
    pixels.set(bytes.subarray(3 * i, 3 * i + 3), 4 * i);
    pixels[4 * i + 3] = 255;
  }
  return new ImageData(pixels, width, height);
}

// Returns the figure with its matrices decoded, ready to be drawn.
export function decodeFigure(figure) {
  if (figure.kind === "Heatmap") return { ...figure, values: decodeMatrix(figure.values) };
  if (figure.kind === "HeatmapGrid") return { ...figure, panels: figure.panels.map((panel) => decodeFigure({ ...figure.shared, ...panel })) };
  if (figure.kind === "ImageOverlay") return { ...figure, image: decodeImage(figure.image), weights: figure.weights.map(decodeMatrix) };
  return figure;
}
