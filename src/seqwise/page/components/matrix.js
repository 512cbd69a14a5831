// Matrices and images as `packing.py` writes them.
async function inflate(text) {
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

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
export async function decodeMatrix(packed) {
  if (Array.isArray(packed)) {
    const values = Float64Array.from(packed.flat(), (value) => value ?? NaN);
    return { rows: packed.length, columns: packed[0]?.length ?? 0, values, block: [1, 1], step: 0 };
  }
  const bytes = await inflate(packed.codes), [rows, columns] = packed.shape;
  return packed.code === "half" ? { rows, columns, values: decodeHalves(bytes, packed.exponent), block: packed.block, step: 0 }
    : { rows, columns, values: decodeBytes(bytes, packed.low, packed.high), block: packed.block, step: (packed.high - packed.low) / 254 };
}

async function decodeImage({ width, height, codes }) {
  const bytes = await inflate(codes), pixels = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < width * height; i++) {
    pixels.set(bytes.subarray(3 * i, 3 * i + 3), 4 * i);
    pixels[4 * i + 3] = 255;
  }
  return new ImageData(pixels, width, height);
}

// Returns the figure with its matrices decoded, ready to be drawn.
export async function decodeFigure(figure) {
  if (figure.kind === "Heatmap") return { ...figure, values: await decodeMatrix(figure.values) };
  if (figure.kind === "HeatmapGrid")
    return { ...figure, panels: await Promise.all(figure.panels.map((panel) => decodeFigure({ ...figure.shared, ...panel }))) };
  if (figure.kind === "ImageOverlay")
    return { ...figure, image: await decodeImage(figure.image), weights: await Promise.all(figure.weights.map(decodeMatrix)) };
  return figure;
}
