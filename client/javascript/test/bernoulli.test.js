import assert from "node:assert/strict";
import { test } from "node:test";

import { bernoulli, exactChance } from "../src/bernoulli.js";
import { subsetOf } from "../src/responses.js";
import { stream } from "../testing/making.js";

const SIZES = [1, 2, 3, 4, 5, 16, 128];
const CHANCES = [0, 5e-324, 2 ** -1022, 0.1, 0.25, 0.3141, 0.5, 0.75, 1 - 2 ** -53, 1];

/** Return the double whose digits these are, adding the smallest first. */
function numberOf({ certain, digits }) {
  return certain ? 1 : digits.reduceRight((sum, digit, i) => sum + digit * 2 ** -(i + 1), 0);
}

/** One lane after the other, a digit at a time, as the specification says it. */
function laneByLane(low, high, selector, drawn) {
  const result = new Uint8Array(selector.length);
  for (let lane = 0; lane < 8 * selector.length; lane++) {
    const [byte, bit] = [lane >> 3, lane & 7];
    const { certain, digits } = (selector[byte] >> bit) & 1 ? high : low;
    let one = certain;
    for (let round = 0; !certain && round < digits.length; round++) {
      const digit = (drawn[round * selector.length + byte] >> bit) & 1;
      one = digits[round] > digit;
      if (digits[round] !== digit) break;
    }
    if (one) result[byte] |= 1 << bit;
  }
  return result;
}

/** Hand out given bytes. */
function given(bytes) {
  let used = 0;
  return {
    fill(target) {
      target.set(bytes.subarray(used, used + target.length));
      used += target.length;
    },
  };
}

test("a double's digits add up to exactly the double, however small", () => {
  for (const chance of CHANCES) assert.equal(numberOf(exactChance(chance)), chance);
  const random = stream("doubles").fill(new Uint8Array(2_000));
  for (let at = 0; at < random.length; at += 8) {
    const view = new DataView(random.buffer, at);
    view.setUint16(0, view.getUint16(0) % 0x3ff0); // positive, and below 1
    const chance = view.getFloat64(0);
    assert.equal(numberOf(exactChance(chance)), chance);
  }
});

test("a set holds its own category with exactly its chance", () => {
  // All pairs of bytes that the coin may read.
  const chance = 8087 / 65_536;
  const draw = subsetOf(4, 1, chance).drawer({ k: 8 });
  let held = 0;
  for (let pair = 0; pair < 65_536; pair++) {
    const coins = given(Uint8Array.of(pair >> 8, pair & 255, ...new Uint8Array(8)));
    held += Number(draw(Uint8Array.of(1), coins)[0] === 1);
  }
  assert.equal(held / 65_536, chance);
});

test("what isn't a probability is refused", () => {
  for (const wrong of [-0.1, 1.1, NaN, Infinity]) assert.throws(() => exactChance(wrong), RangeError);
});

test("lanes fall as if each were drawn alone, for every size and every pair of chances", () => {
  const chances = CHANCES.map(exactChance);
  for (const size of SIZES) {
    const random = stream(`lanes ${size}`).fill(new Uint8Array(size * 1_200));
    const [selector, drawn] = [random.subarray(0, size), random.subarray(size)];
    for (const low of chances) {
      for (const high of chances) {
        const expected = laneByLane(low, high, selector, drawn);
        assert.deepEqual(bernoulli(low, high, selector, given(drawn)), expected);
      }
    }
  }
});

test("no two lanes share a bit of the stream", () => {
  const [low, high] = [exactChance(0.1234), exactChance(0.8765)];
  const selector = stream("selector").fill(new Uint8Array(4));
  const drawn = stream("drawn").fill(new Uint8Array(4 * 64));
  const before = bernoulli(low, high, selector, given(drawn));
  for (let bit = 0; bit < 8 * drawn.length; bit++) {
    const turned = drawn.slice();
    turned[bit >> 3] ^= 1 << (bit & 7);
    const after = bernoulli(low, high, selector, given(turned));
    const lane = bit % 32;
    const changed = after.map((byte, i) => byte ^ before[i]);
    changed[lane >> 3] &= ~(1 << (lane & 7));
    assert.deepEqual(changed, new Uint8Array(4), `bit ${bit} of the stream moved another lane`);
  }
});

test("the stream isn't touched where no coin decides", () => {
  const untouched = { fill: () => assert.fail("touched") };
  const selector = Uint8Array.of(0xa5, 0x0f);
  assert.deepEqual(bernoulli(exactChance(0), exactChance(1), selector, untouched), selector);
  assert.deepEqual(bernoulli(exactChance(1), exactChance(0), selector, untouched), Uint8Array.of(0x5a, 0xf0));
});
