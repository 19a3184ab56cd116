/** Bytes as hexadecimal and back, and integers as bytes. */

/** @param {Uint8Array} bytes @returns {string} lower-case digits */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {string} digits @returns {Uint8Array} */
export function fromHex(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** @param {number} value below 2^32 @param {number} length at most 4 @returns {Uint8Array} little-endian */
export function littleEndian(value, length) {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = value >>> (8 * i);
  return bytes;
}
