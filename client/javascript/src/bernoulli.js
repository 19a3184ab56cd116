/**
 * Fair bytes into exact Bernoulli bits: each lane compares its own uniform number with its own probability, binary
 * digit by digit, until the two differ.
 *
 * Invariant: no two lanes share a bit of the stream. If they did, each would keep its probability and no average would
 * show it, but the reports would have lost their privacy.
 */

const PORTION = 128;

/**
 * A source of fair bytes: `fill` overwrites the whole array with new ones.
 * @typedef {{fill(target: Uint8Array): void}} ByteStream
 */

/**
 * A probability in binary: whether it is 1, else its digits behind the binary point, down to the last that is 1.
 * @typedef {{readonly certain: boolean, readonly digits: Uint8Array}} Chance
 */

/**
 * Return all binary digits of exactly the number that the double is.
 * @param {number} probability from 0 to 1 @returns {Chance}
 */
export function exactChance(probability) {
  if (!(probability >= 0 && probability <= 1)) {
    throw new RangeError(`${probability} is no probability: must be from 0 to 1`);
  }
  if (probability === 1) return { certain: true, digits: new Uint8Array(0) };
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, probability);
  const pattern = view.getBigUint64(0);
  const exponent = Number(pattern >> 52n);
  const fraction = pattern & ((1n << 52n) - 1n);
  // The double is significand * 2^(-places): subnormals have no hidden bit.
  const significand = exponent ? fraction | (1n << 52n) : fraction;
  const places = exponent ? 1075 - exponent : 1074;
  const digits = significand.toString(2).padStart(places, "0").replace(/0+$/, "");
  return { certain: false, digits: Uint8Array.from(digits, Number) };
}

/**
 * Draw independent bits, as many as the selector has: 1 with chance `high` where the selector has a 1, with chance
 * `low` elsewhere.
 *
 * Round r looks at the stream's bytes from r * length on, one bit for each lane; up to PORTION bytes are taken at a
 * time, so the stream may be read beyond what was looked at.
 * @param {Chance} low @param {Chance} high @param {Uint8Array} selector bit j is bit j mod 8 of byte j div 8
 * @param {ByteStream} stream @returns {Uint8Array} as long as the selector
 */
export function bernoulli(low, high, selector, stream) {
  const { length } = selector;
  const result = new Uint8Array(length);
  const undecided = new Uint8Array(length).fill(0xff);
  // Lanes whose chance is 1 need no coin.
  if (low.certain || high.certain) {
    for (let i = 0; i < length; i++) {
      result[i] = (high.certain ? selector[i] : 0) | (low.certain ? ~selector[i] : 0);
      undecided[i] &= ~result[i];
    }
  }
  const drawn = new Uint8Array(length * Math.max(1, Math.floor(PORTION / length)));
  let at = drawn.length;
  for (let round = 0; ; round++) {
    // Lanes whose chance has no digits from this round on are 0.
    const lowGoesOn = round < low.digits.length ? -1 : 0;
    const highGoesOn = round < high.digits.length ? -1 : 0;
    let any = 0;
    for (let i = 0; i < length; i++) {
      undecided[i] &= (selector[i] & highGoesOn) | (~selector[i] & lowGoesOn);
      any |= undecided[i];
    }
    if (!any) return result;
    if (at === drawn.length) {
      stream.fill(drawn);
      at = 0;
    }
    // Lanes whose drawn digit differs from their chance's are decided: 1 if the chance's is the 1.
    const lowDigit = -(low.digits[round] ?? 0);
    const highDigit = -(high.digits[round] ?? 0);
    for (let i = 0; i < length; i++) {
      const wanted = (selector[i] & highDigit) | (~selector[i] & lowDigit);
      const differ = undecided[i] & (drawn[at + i] ^ wanted);
      result[i] |= differ & wanted;
      undecided[i] &= ~differ;
    }
    at += length;
  }
}
