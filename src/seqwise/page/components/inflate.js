// Decompresses zlib data (RFC 1950, 1951) at once. The browser's DecompressionStream returns its result later, so that a
// page photographed or printed as soon as it is loaded would lack figures.
const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145,
  8193, 12289, 16385, 24577];
const DISTANCE_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const FIXED = [buildCode(Array.from({ length: 288 }, (_, at) => at < 144 ? 8 : at < 256 ? 9 : at < 280 ? 7 : 8)), buildCode(Array(30).fill(5))];

// A canonical Huffman code: how many symbols have each length, and the symbols in the order of their codes.
function buildCode(lengths) {
  const counts = new Uint16Array(16), starts = new Uint16Array(17), symbols = new Uint16Array(lengths.length);
  for (const length of lengths) if (length) counts[length]++;
  for (let length = 1; length < 16; length++) starts[length + 1] = starts[length] + counts[length];
  lengths.forEach((length, symbol) => { if (length) symbols[starts[length]++] = symbol; });
  return { counts, symbols };
}

// Returns `size` bytes.
export function inflate(packed, size) {
  const output = new Uint8Array(size);
  let end = 0, at = 2, bit = 0;  // after the header of zlib

  const readBit = () => {
    const value = packed[at] >> bit & 1;
    bit = bit + 1 & 7;
    if (!bit) at++;
    return value;
  };
  const readBits = (count) => {
    let value = 0;
    for (let i = 0; i < count; i++) value |= readBit() << i;
    return value;
  };
  const readSymbol = ({ counts, symbols }) => {
    for (let length = 1, code = 0, first = 0, index = 0; length < 16; length++) {
      code |= readBit();
      if (code - first < counts[length]) return symbols[index + code - first];
      index += counts[length];
      first = first + counts[length] << 1;
      code <<= 1;
    }
    throw new Error("The compressed data of a figure are damaged.");
  };

  function readCodes() {
    const numLiterals = readBits(5) + 257, numDistances = readBits(5) + 1, numCodes = readBits(4) + 4, codes = new Uint8Array(19);
    for (let i = 0; i < numCodes; i++) codes[CODE_ORDER[i]] = readBits(3);
    const code = buildCode(codes), lengths = new Uint8Array(numLiterals + numDistances);
    for (let i = 0; i < lengths.length;) {
      const symbol = readSymbol(code);
      if (symbol < 16) { lengths[i++] = symbol; continue; }
      const value = symbol === 16 ? lengths[i - 1] : 0;
      const count = symbol === 16 ? 3 + readBits(2) : symbol === 17 ? 3 + readBits(3) : 11 + readBits(7);
      lengths.fill(value, i, i += count);
    }
    return [buildCode(lengths.subarray(0, numLiterals)), buildCode(lengths.subarray(numLiterals))];
  }

  function copyStored() {
    if (bit) { bit = 0; at++; }
    const length = packed[at] | packed[at + 1] << 8;
    output.set(packed.subarray(at + 4, at + 4 + length), end);
    at += 4 + length;
    end += length;
  }

  function readBlock([literals, distances]) {
    for (let symbol = readSymbol(literals); symbol !== 256; symbol = readSymbol(literals)) {
      if (symbol < 256) { output[end++] = symbol; continue; }
      const length = LENGTHS[symbol - 257] + readBits(LENGTH_BITS[symbol - 257]), far = readSymbol(distances);
      const distance = DISTANCES[far] + readBits(DISTANCE_BITS[far]);
      for (let i = 0; i < length; i++, end++) output[end] = output[end - distance];
    }
  }

  for (let isLast = false; !isLast;) {
    if (at >= packed.length) throw new Error("The compressed data of a figure are incomplete.");
    isLast = readBit() === 1;
    const kind = readBits(2);
    if (kind) readBlock(kind === 1 ? FIXED : readCodes());
    else copyStored();
  }
  return output;
}
