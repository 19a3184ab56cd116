import assert from "node:assert/strict";
import { test } from "node:test";

import { murmur3x86 } from "../src/murmur3.js";

test("the hash passes the verification of its author's test suite (SMHasher: 0xb3ece62a)", () => {
  const hashes = new Uint8Array(256 * 16);
  for (let i = 0; i < 256; i++) {
    const words = murmur3x86(
      Uint8Array.from({ length: i }, (_, j) => j),
      256 - i,
    );
    const view = new DataView(hashes.buffer, 16 * i);
    words.forEach((word, j) => view.setUint32(4 * j, word, true));
  }
  assert.equal(murmur3x86(hashes)[0], 0xb3ece62a);
});
