/** A collector on the loopback interface that answers as a test tells it to, and kept texts. */

import { createServer } from "node:http";

import { parse } from "../src/state.js";
import { Telemetry } from "../src/telemetry.js";
import { APPLICATION, buildRegistry } from "./making.js";

/**
 * What to answer; status 0 closes the connection without a word, SILENCE leaves it open.
 *
 * @typedef {{status: number, body?: unknown, headers?: Record<string, string>}} Answer
 */

/** @type {Answer} */
export const SILENCE = { status: -1 };

/** @param {number} accepted @returns {Answer} */
export const created = (accepted) => ({ status: 201, body: { accepted } });

/**
 * Serve until the test ends; request number n (from 0) is answered with script(n, batch).
 *
 * @param {import("node:test").TestContext} t
 * @param {(n: number, batch: any) => Answer} [script]
 */
export async function scriptedCollector(t, script = (_, batch) => created(batch.reports.length)) {
  /** @type {{path: string | undefined, headers: object, batch: any}[]} */
  const received = [];
  const counts = { hungUp: 0 };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const batch = JSON.parse(body);
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

/**
 * Replace a global until the test ends.
 *
 * @param {import("node:test").TestContext} t
 * @param {string} name
 * @param {unknown} value
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

/**
 * Return the state that a client with the tests' registry has stored.
 *
 * @param {{texts: Map<string, string>}} storage
 */
export function storedState({ texts }) {
  return parse(String(texts.get(STATE_KEY)), STATE_KEY);
}

/**
 * Keep texts in a Map, which a test may look into.
 *
 * @param {Map<string, string>} texts
 */
export function memoryStorage(texts = new Map()) {
  return {
    texts,
    get: async (/** @type {string} */ key) => texts.get(key),
    set: async (/** @type {string} */ key, /** @type {string} */ value) =>
      void texts.set(key, value),
    delete: async (/** @type {string} */ key) => void texts.delete(key),
  };
}

/**
 * Make a telemetry that retries fast and keeps its log, and close it after the test.
 *
 * @param {import("node:test").TestContext} t
 * @param {Partial<import("../src/telemetry.js").Options>} options
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
