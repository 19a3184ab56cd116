/**
 * Fair bytes into exact Bernoulli bits: each lane compares its own uniform number with its own
 * probability, binary digit by digit, until the two differ.
 *
 * Invariant: no two lanes share a bit of the stream. If they did, each would keep its probability and no
 * average would show it, but the reports would have lost their privacy.
 */

const PORTION = 128;

/**
 * A source of fair bytes: `fill` overwrites the whole array with new ones.
 * @typedef {{fill(target: Uint8Array): void}} ByteStream
 */

/**
 * A probability in binary: whether it is 1, else its digits behind the binary point, down to the last that is
 * 1.
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
 * Draw independent bits, as many as the selector has: 1 with chance `high` where the selector has a 1, with
 * chance `low` elsewhere.
 *
 * Round r looks at the stream's bytes from r * length on, one bit for each lane; up to PORTION bytes are taken
 * at a time, so the stream may be read beyond what was looked at.
 * @param {Chance} low @param {Chance} high @param {Uint8Array} selector bit j is bit j mod 8 of byte j div 8
 * @param {ByteStream} stream @returns {Uint8Array} as long as the selector
 */
export function bernoulli(low, high, selector, stream) {
  const { length } = selector;
  const result = new Uint8Array(length);
  const undecided = new Uint8Array(length).fill(0xff);
  if (low.certain || high.certain) settleCertain(low, high, selector, undecided, result);
  const drawn = new Uint8Array(length * Math.max(1, Math.floor(PORTION / length)));
  let at = drawn.length;
  for (let round = 0; keepThoseWithDigits(low, high, round, selector, undecided); round++) {
    if (at === drawn.length) {
      stream.fill(drawn);
      at = 0;
    }
    const digits = { low: low.digits[round], high: high.digits[round] };
    compareDigit(digits, selector, drawn.subarray(at, at + length), undecided, result);
    at += length;
  }
  return result;
}

/**
 * Set the lanes whose chance is 1, without looking at a coin.
 * @param {Chance} low @param {Chance} high @param {Uint8Array} selector @param {Uint8Array} undecided
 * @param {Uint8Array} result
 */
function settleCertain(low, high, selector, undecided, result) {
  for (let i = 0; i < selector.length; i++) {
    result[i] = (high.certain ? selector[i] : 0) | (low.certain ? ~selector[i] : 0);
    undecided[i] &= ~result[i];
  }
}

/**
 * Leave undecided only lanes whose chance has digits from this round on; the others are 0.
 * @param {Chance} low @param {Chance} high @param {number} round @param {Uint8Array} selector
 * @param {Uint8Array} undecided @returns {boolean} whether any lane is still undecided
 */
function keepThoseWithDigits(low, high, round, selector, undecided) {
  const lowGoesOn = round < low.digits.length ? -1 : 0;
  const highGoesOn = round < high.digits.length ? -1 : 0;
  let any = 0;
  for (let i = 0; i < selector.length; i++) {
    undecided[i] &= (selector[i] & highGoesOn) | (~selector[i] & lowGoesOn);
    any |= undecided[i];
  }
  return any !== 0;
}

/**
 * Decide the lanes whose drawn digit differs from their chance's: 1 if the chance's is the 1.
 * @param {{low: number, high: number}} digits undefined behind the last is as good as 0
 * @param {Uint8Array} selector @param {Uint8Array} drawn @param {Uint8Array} undecided
 * @param {Uint8Array} result
 */
function compareDigit(digits, selector, drawn, undecided, result) {
  for (let i = 0; i < selector.length; i++) {
    const wanted = (selector[i] & -digits.high) | (~selector[i] & -digits.low);
    const differ = undecided[i] & (drawn[i] ^ wanted);
    result[i] |= differ & wanted;
    undecided[i] &= ~differ;
  }
}
