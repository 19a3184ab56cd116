/** An app's options, checked once, at construction; each mistake is an error that names it. */

import { OptionError, shown } from "./errors.js";
import { makeRegistry, telling } from "./registry.js";
import { isStorage } from "./storage.js";
import { nameOfKey, parseVerifyKey } from "./switch.js";

/**
 * @typedef {object} Options
 * @property {unknown} registry the parsed metrics.toml: {application, metrics: {name: {...}}}
 * @property {string | URL} endpoint the collector's base address; in a browser it may be relative
 * @property {import("./storage.js").KeptTexts} storage where secret, account and unsent reports live; must survive
 *   updates
 * @property {boolean} [consent] false: nothing is stored, recorded or sent (default: true)
 * @property {boolean} [development] while an app is being made: `record` throws at what its author should mend (unknown
 *   metrics, values of the wrong type), and a metric with mode "once" doesn't wait for its first period (default:
 *   false)
 * @property {number} [batchSize] send as soon as this many reports wait (default: 100)
 * @property {number} [batchMillis] send at the latest this long after the first (default: a minute)
 * @property {number} [maxWaiting] most unsent reports; beyond it the oldest are dropped (10,000)
 * @property {number} [maxOutboxBytes] most bytes of them in the storage, likewise (1,000,000)
 * @property {number} [timeoutMillis] for one request (default: ten seconds)
 * @property {number} [firstRetryMillis] upper end of the first wait (default: one second)
 * @property {number} [longestRetryMillis] upper end of later waits (default: five minutes)
 * @property {string} [ingestKey] the key that the collector asks of this app
 * @property {Readonly<Record<string, string>>} [dimensions] facts about the app, in the clear, such as {platform:
 *   "mac"}; a value that the registry doesn't list is "other", or with `development` an error
 * @property {true | string | URL} [switch] where to ask, at most once a day and only when something is sent anyway,
 *   whether metrics are off for now: an address, or true for the collector's own; it can't turn anything on or raise an
 *   epsilon (default: nothing is asked)
 * @property {string} [switchKey] public key, as `hubbub-collector token --switch` prints it: only a switch that is
 *   signed with it is obeyed
 * @property {typeof globalThis.fetch} [fetch] instead of the global one
 * @property {(message: string) => void} [log] instead of console.warn; called once for each kind of trouble
 */

export const DEFAULTS = {
  batchSize: 100,
  batchMillis: 60_000,
  maxWaiting: 10_000,
  maxOutboxBytes: 1_000_000,
  timeoutMillis: 10_000,
  firstRetryMillis: 1_000,
  longestRetryMillis: 300_000,
};
export const LARGEST_TIMER = 2 ** 31 - 1;

/** @typedef {ReturnType<typeof checkOptions>} CheckedOptions */

/** Return the options with their defaults. @param {Options} options throws MetricError, OptionError */
export function checkOptions(options) {
  const { storage, consent = true, development = false, dimensions = {}, fetch, log } = options;
  if (!isStorage(storage)) {
    throw new OptionError("storage: must be an object with the function update, or with get and set");
  }
  for (const [name, value] of Object.entries({ consent, development })) {
    if (typeof value !== "boolean") throw new OptionError(`${name} = ${shown(value)}: must be true or false`);
  }
  if (log !== undefined && typeof log !== "function") {
    throw new OptionError(`log = ${shown(log)}: must be a function`);
  }
  const numbers = checkNumbers(options);
  const registry = telling(makeRegistry(options.registry), dimensions, development);
  const endpoint = address(options.endpoint, "endpoint");
  return {
    ...{ registry, storage, consent, development, endpoint, ...numbers, fetch, log },
    switched: checkSwitched(options, endpoint, registry.application),
    ingestKey: checkKey(options.ingestKey),
  };
}

/** @param {Options} options @returns {typeof DEFAULTS} */
function checkNumbers(options) {
  const numbers = { ...DEFAULTS };
  for (const name of /** @type {(keyof typeof DEFAULTS)[]} */ (Object.keys(DEFAULTS))) {
    const value = (numbers[name] = options[name] ?? DEFAULTS[name]);
    if (Number.isInteger(value) && value >= 1 && value <= LARGEST_TIMER) continue;
    throw new OptionError(`${name} = ${shown(value)}: must be an integer between 1 and ${LARGEST_TIMER}`);
  }
  if (numbers.batchSize <= numbers.maxWaiting) return numbers;
  throw new OptionError(`batchSize = ${numbers.batchSize}: must be at most maxWaiting`);
}

/** @param {unknown} key @returns {string | undefined} which RFC 6750 (2.1) allows in a header */
function checkKey(key) {
  if (key === undefined || (typeof key === "string" && /^[A-Za-z0-9._~+/-]+=*$/.test(key))) {
    return key;
  }
  throw new OptionError("ingestKey: must be letters, digits and -._~+/ alone, and = at the end");
}

/**
 * Where to ask for the switch, for whom, and which key must have signed it; `keptAs` is the key's name.
 * @typedef {{address: string, application: string, key: Uint8Array | null, keptAs: string}} Switched
 */

/** @param {Options} options @param {URL} endpoint @param {string} application @returns {Switched | null} */
function checkSwitched({ switch: wanted, switchKey }, endpoint, application) {
  const key = switchKey === undefined ? null : parseVerifyKey(switchKey);
  if (wanted === undefined || /** @type {unknown} */ (wanted) === false) return null;
  const own = `${endpoint.href.replace(/\/+$/, "")}/v1/switch`;
  const url = wanted === true ? new URL(own) : address(wanted, "switch");
  if (endpoint.protocol === "https:" && url.protocol !== "https:") {
    throw new OptionError(`switch = ${shown(url.href)}: must be an https address, as the endpoint is`);
  }
  return { address: url.href, application, key, keptAs: nameOfKey(key) };
}

/** @param {URL} address @returns {boolean} whether what goes there can be read on the way */
export function isInTheClear({ protocol, hostname }) {
  return protocol === "http:" && !/^(.*\.)?localhost\.?$|^127\.[\d.]+$|^\[::1\]$/.test(hostname);
}

/** @param {unknown} endpoint @param {string} name @returns {URL} */
function address(endpoint, name) {
  const wanted = "must be an http or https address without user, query or fragment";
  let url;
  try {
    url = new URL(String(endpoint), globalThis.location?.href);
  } catch {
    throw new OptionError(`${name} = ${shown(endpoint)}: ${wanted}`);
  }
  const extras = url.username + url.password + url.search + url.hash;
  if (!/^https?:$/.test(url.protocol) || extras) {
    throw new OptionError(`${name} = ${shown(String(endpoint))}: ${wanted}`);
  }
  return url;
}
