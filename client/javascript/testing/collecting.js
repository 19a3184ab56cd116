/** A collector on the loopback interface that answers as a test tells it to, and kept texts. */

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { MEDIA_TYPE } from "../src/compact.js";
import { parse } from "../src/state.js";
import { Telemetry } from "../src/telemetry.js";
import { APPLICATION, buildRegistry } from "./making.js";

/**
 * What to answer; status 0 closes the connection without a word, SILENCE leaves it open.
 * @typedef {{status: number, body?: unknown, headers?: Record<string, string>}} Answer
 */

/** @type {Answer} */
export const SILENCE = { status: -1 };

/** @param {number} accepted @returns {Answer} */
export const created = (accepted) => ({ status: 201, body: { accepted } });

/**
 * Serve until the test ends; request number n (from 0) is answered with script(n, batch).
 * @param {import("node:test").TestContext} t @param {(n: number, batch: any) => Answer} [script]
 */
export async function scriptedCollector(t, script = (_, batch) => created(batch.reports.length)) {
  /** @type {{path: string | undefined, headers: object, batch: any}[]} */
  const received = [];
  const counts = { hungUp: 0 };
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const compact = request.headers["content-type"] === MEDIA_TYPE;
    const batch = compact ? readCompact(body) : JSON.parse(body.toString());
    received.push({ path: request.url, headers: request.headers, batch });
    const { status, body: answer = "", headers = {} } = script(received.length - 1, batch);
    response.on("close", () => (counts.hungUp += Number(!response.writableEnded)));
    if (status < 0) return;
    if (!status) return request.socket.destroy();
    response.writeHead(status, headers);
    response.end(typeof answer === "string" ? answer : JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}`, received, counts };
}

/** @param {Buffer} body in the compact form @returns {object} the same batch as JSON has it */
export function readCompact(body) {
  const reports = [];
  let at = 19;
  for (let left = body.readUInt16LE(17); left; left--) {
    const name = body.toString("ascii", at + 1, (at += 1 + body[at]));
    const [metric, slice] = name.split(";");
    const told = slice && { slice };
    const version = body.readUInt32LE(at);
    const width = body.readUInt16LE(at + 4);
    const end = at + 8 + body.readUInt16LE(at + 6) * (2 + width);
    for (at += 8; at < end; at += 2 + width) {
      const bits = body.toString("base64", at + 2, at + 2 + width);
      reports.push({ metric, ...told, version, cohort: body.readUInt16LE(at), bits });
    }
  }
  return { batch_id: body.toString("hex", 1, 17), reports };
}

/**
 * Replace a global until the test ends.
 * @param {import("node:test").TestContext} t @param {string} name @param {unknown} value
 */
export function replaceGlobal(t, name, value) {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true });
  t.after(() => {
    if (before) Object.defineProperty(globalThis, name, before);
    else Reflect.deleteProperty(globalThis, name);
  });
}

export const STATE_KEY = `hubbub.${APPLICATION}`;

/** Return the state that a client with the tests' registry has stored. @param {{texts: Map<string, string>}} storage */
export function storedState({ texts }) {
  return parse(String(texts.get(STATE_KEY)), STATE_KEY);
}

/** Keep texts in a Map, which a test may look into. @param {Map<string, string>} texts */
export function memoryStorage(texts = new Map()) {
  return {
    texts,
    get: async (/** @type {string} */ key) => texts.get(key),
    set: async (/** @type {string} */ key, /** @type {string} */ value) => void texts.set(key, value),
    delete: async (/** @type {string} */ key) => void texts.delete(key),
  };
}

/**
 * Make a telemetry that retries fast and keeps its log, and close it after the test.
 * @param {import("node:test").TestContext} t @param {Partial<import("../src/telemetry.js").Options>} options
 */
export function startTelemetry(t, options) {
  /** @type {string[]} */
  const logged = [];
  const telemetry = new Telemetry({
    registry: buildRegistry(),
    endpoint: "http://127.0.0.1:9",
    storage: memoryStorage(),
    firstRetryMillis: 5,
    longestRetryMillis: 20,
    log: (message) => void logged.push(message),
    ...options,
  });
  t.after(() => telemetry.close(1));
  return { telemetry, logged };
}

/**
 * Make a telemetry of these metrics that reports to a collector of its own.
 * @param {import("node:test").TestContext} t
 * @param {Partial<import("../src/telemetry.js").Options> & {metrics?: Record<string, Record<string, unknown>>}}
 *   [options]
 * @param {(n: number, batch: any) => Answer} [script] of the collector
 */
export async function start(t, { metrics, storage = memoryStorage(), ...options } = {}, script) {
  const collector = await scriptedCollector(t, script);
  const given = { endpoint: collector.url, registry: buildRegistry(metrics), storage, ...options };
  const reports = () => collector.received.flatMap(({ batch }) => batch.reports);
  const names = () => reports().map(({ metric }) => metric);
  return { ...collector, ...startTelemetry(t, given), storage, reports, names };
}

/** @param {Telemetry} telemetry @param {object} expected what its status has, among others */
export function assertStatus(telemetry, expected) {
  const status = telemetry.status();
  assert.deepEqual(Object.fromEntries(Object.keys(expected).map((key) => [key, status[key]])), expected);
}

/** @param {Telemetry} telemetry @param {...string} values of the metric "homepage" */
export async function report(telemetry, ...values) {
  for (const value of values) telemetry.record("homepage", value);
  assert.equal(await telemetry.flush(), true);
}
