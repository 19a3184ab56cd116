import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { toHex } from "../src/bytes.js";
import { Shake256 } from "../src/shake256.js";

const LENGTHS = [0, 1, 3, 4, 134, 135, 136, 137, 271, 272, 273, 1000, 65_536];

function messageOf(length) {
  return Uint8Array.from({ length }, (_, i) => (i * 167 + length) % 256);
}

test("the output is that of another implementation, for messages around the block's size", () => {
  for (const length of LENGTHS) {
    const expected = createHash("shake256", { outputLength: 500 }).update(messageOf(length)).digest("hex");
    assert.equal(toHex(new Shake256(messageOf(length)).fill(new Uint8Array(500))), expected);
  }
});

test("the stream is the same in whichever portions it is read", () => {
  const whole = toHex(new Shake256(messageOf(7)).fill(new Uint8Array(1000)));
  const stream = new Shake256(messageOf(7));
  let portions = "";
  for (let size = 0; portions.length < whole.length; size = (size + 5) % 139) {
    portions += toHex(stream.fill(new Uint8Array(size)));
  }
  assert.ok(portions.startsWith(whole));
});

test("the stream doesn't end", () => {
  const expected = createHash("shake256", { outputLength: 300_000 }).update("").digest();
  assert.deepEqual(Buffer.from(new Shake256(new Uint8Array(0)).fill(new Uint8Array(300_000))), expected);
});
