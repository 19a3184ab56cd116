/** Small makers of what the tests need; every default can be overridden. */

import { readFileSync } from "node:fs";

import { makeMetric } from "../src/registry.js";
import { Shake256 } from "../src/shake256.js";

export const APPLICATION = "com.example.browser";

/** @param {string} name @returns {any[]} the test vectors of docs/protocol/vectors/<name>.json */
export function vectors(name) {
  const path = new URL(`../../../docs/protocol/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8"));
}

/** @param {Record<string, unknown>} [fields] @returns {Record<string, any>} */
export function makeEntry(fields = {}) {
  const sizes = { string: { k: 128, h: 2, m: 64 }, "open-string": { k: 128, m: 64 } };
  const size = sizes[fields.type ?? "string"] ?? {};
  return {
    version: 1,
    type: "string",
    description: "What the tests ask",
    owner: "privacy@example.com",
    expires: "2099-12-31",
    ...noiseFor(fields),
    ...size,
    ...fields,
  };
}

/** @param {Record<string, unknown>} fields @returns {Record<string, number>} what goes with these */
function noiseFor({ type, response, f0 }) {
  if (type === "number" || response === "subset") return { q: 0.75 };
  return f0 === undefined ? { f: 0.5, p: 0.25, q: 0.75 } : { p: 0.25, q: 0.75 };
}

/** @param {Record<string, unknown>} [fields] an entry's, and `name` and `application` */
export function buildMetric({ name = "homepage", application = APPLICATION, ...fields } = {}) {
  return makeMetric(String(application), String(name), makeEntry(fields));
}

/** @param {import("../src/registry.js").Metric} metric @param {unknown} value @param {number} [cohort] */
export function trueBits({ type, params }, value, cohort = 0) {
  return type.bits(value, cohort, params);
}

/** @param {Record<string, Record<string, unknown>>} [entries] fields of each metric */
export function buildRegistry(entries = { homepage: {} }) {
  const made = Object.entries(entries).map(([name, fields]) => [name, makeEntry(fields)]);
  return { application: APPLICATION, metrics: Object.fromEntries(made) };
}

/** @param {string | number} client @returns {Uint8Array} a client's secret, the same in every run */
export function buildSecret(client = 0) {
  return stream(`test client ${client}`).fill(new Uint8Array(32));
}

/** @param {string} label @returns {Shake256} uniform bytes, the same in every run */
export function stream(label) {
  return new Shake256(new TextEncoder().encode(label));
}
