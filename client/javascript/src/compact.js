/**
 * Batches in the compact form: for each metric, slice and version its reports as fixed-width records.
 *
 * docs/protocol, section 8, describes it byte by byte. Invariant: a batch has just one compact form. Sections and
 * records are in ascending order, so that their order reveals nothing.
 */

import { fromHex, littleEndian } from "./bytes.js";
import { sectionName } from "./dimensions.js";

export const MEDIA_TYPE = "application/vnd.hubbub.batch";

const FORMAT = 1;

/** @typedef {import("./batch.js").StoredReport} StoredReport */

/**
 * Bytes are texts of characters below 256 until the end, because texts have an order of their own.
 * @typedef {{name: string, version: number, record: string}} Entry of a section
 */

/** @param {readonly StoredReport[]} reports @returns {StoredReport[]} in the order of the compact form */
export function inAscendingOrder(reports) {
  const pairs = reports.map((report) => ({ report, entry: entryOf(report) }));
  return pairs.sort((one, other) => compare(one.entry, other.entry)).map(({ report }) => report);
}

/**
 * Return a batch's compact body, in which its reports are in ascending order.
 * @param {string} id @param {readonly StoredReport[]} reports @returns {ArrayBuffer}
 */
export function compactBody(id, reports) {
  const entries = reports.map(entryOf).sort(compare);
  /** @type {Entry[][]} */
  const sections = [];
  for (const entry of entries) {
    const last = sections.at(-1);
    if (last && last[0].name === entry.name && last[0].version === entry.version) {
      last.push(entry);
    } else sections.push([entry]);
  }
  const head = text(Uint8Array.of(FORMAT)) + text(fromHex(id)) + number(sections.length, 2);
  return Uint8Array.from(head + sections.map(sectionText).join(""), charCode).buffer;
}

/** @param {StoredReport} report @returns {Entry} */
function entryOf({ metric, slice, version, record }) {
  return { name: sectionName(metric, slice), version, record: atob(record) };
}

/** @param {Entry} one @param {Entry} other */
function compare(one, other) {
  if (one.name !== other.name) return one.name < other.name ? -1 : 1;
  if (one.version !== other.version) return one.version - other.version;
  return one.record < other.record ? -1 : Number(one.record > other.record);
}

/** @param {Entry[]} entries of a section */
function sectionText(entries) {
  const [{ name, version, record }] = entries;
  const numbers = number(version, 4) + number(record.length - 2, 2) + number(entries.length, 2);
  return number(name.length, 1) + name + numbers + entries.map((entry) => entry.record).join("");
}

/** @param {number} value @param {number} length @returns {string} little-endian */
function number(value, length) {
  return text(littleEndian(value, length));
}

/** @param {Uint8Array} bytes */
function text(bytes) {
  return String.fromCharCode(...bytes);
}

/** @param {string} character */
function charCode(character) {
  return character.charCodeAt(0);
}
