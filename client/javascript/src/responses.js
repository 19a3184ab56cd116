/**
 * How a value's bits are blurred: the responses that a metric can have, and what each promises.
 *
 * The unary response gives every bit noise of its own, once or twice: it is RAPPOR. The others draw a whole report at
 * once, from as many cells as there are categories or outputs, and can be asked once per answer only: one coin decides
 * whether the report favours the value, and unbiased integers choose among what is left. Invariant: a probability is
 * exactly that of the double, and choices are exactly uniform.
 */

import { bernoulli, exactChance } from "./bernoulli.js";
import { filterOf } from "./bloom.js";
import { uniformBelow } from "./keyed.js";
import { permanentLogRatios, reportLogRatios } from "./params.js";

/** @typedef {import("./metric-types.js").MetricType} MetricType */
/** @typedef {Readonly<import("./params.js").RapporParams>} RapporParams */
/** @typedef {import("./bernoulli.js").ByteStream} ByteStream */

/**
 * One way to answer.
 *
 * @typedef {object} Response
 * @property {"unary" | "subset" | "window"} name
 * @property {Record<string, unknown>} definition what, besides the parameters, reports depend on
 * @property {(type: MetricType, params: RapporParams) => number} epsilonPermanent what all reports of one answer reveal
 * @property {(type: MetricType, params: RapporParams) => number} epsilonReport what one report reveals
 * @property {(type: MetricType, params: RapporParams, reports: number) => number} epsilonAfter what so many reports of
 *   one answer reveal; at most `epsilonPermanent`, and for f0 = f1 as many times `epsilonReport`
 * @property {(params: RapporParams) => (permanent: Uint8Array, stream: ByteStream) => Uint8Array} drawer returns what
 *   draws a report of an answer
 */

/** Every bit has noise of its own: a permanent response, an instantaneous one, or both. @type {Response} */
export const UNARY = Object.freeze({
  name: "unary",
  definition: {},
  epsilonPermanent: (type, params) => epsilonOf(type, params, permanentLogRatios(params)),
  epsilonReport: (type, params) => epsilonOf(type, params, reportLogRatios(params, 1)),
  epsilonAfter: (type, params, reports) => epsilonOf(type, params, reportLogRatios(params, reports)),
  drawer({ p, q }) {
    const [low, high] = [exactChance(p), exactChance(q)];
    return (permanent, stream) => bernoulli(low, high, permanent, stream);
  },
});

/** @param {MetricType} type @param {RapporParams} params @param {{ones: number, zeros: number}} logRatios of a bit */
function epsilonOf({ isOneBit }, { h }, { ones, zeros }) {
  return isOneBit ? Math.max(Math.abs(ones), Math.abs(zeros)) : h * Math.abs(ones + zeros);
}

/**
 * A report in which a fixed number of cells is set: w of d outcomes of one kind are favoured, with probability q, and d
 * - w aren't, so that no report is more than q (d - w) / ((1 - q) w) times as probable under one value as under
 * another. p and q are the chances with which results see a cell set that isn't the value's, and one that is.
 * @typedef {Response & {cells: number, width: number, chance: number, noise: {p: number, q: number}}} CellsResponse
 */

/**
 * @param {Pick<CellsResponse, "name" | "definition" | "cells" | "width" | "chance" | "noise">} own width from 1 to
 *   cells - 1, chance above width/cells and below 1
 * @param {(own: number, stream: ByteStream) => number[]} draw the cells that are set, by the value's
 * @returns {CellsResponse}
 */
function cellsResponse(own, draw) {
  const { cells, width, chance } = own;
  const epsilon = Math.log(chance * (cells - width)) - Math.log((1 - chance) * width);
  return Object.freeze({
    ...own,
    epsilonReport: () => epsilon,
    // Each report would be drawn from the value itself.
    epsilonPermanent: () => Infinity,
    epsilonAfter: (_type, _params, reports) => reports * epsilon,
    drawer:
      ({ k }) =>
      (permanent, stream) => {
        const byte = permanent.findIndex((each) => each !== 0);
        return filterOf(draw(8 * byte + Math.log2(permanent[byte]), stream), k);
      },
  });
}

/**
 * Subset selection (Ye, Barg 2018): a set of w of d categories that holds one's own with probability q; the others are
 * uniform among those that are left. w = 1 is generalized randomized response.
 * @param {number} cells d @param {number} width w @param {number} chance q
 */
export function subsetOf(cells, width, chance) {
  const p = (chance * (width - 1) + (1 - chance) * width) / (cells - 1);
  const definition = { response: "subset", size: width };
  return cellsResponse({ name: "subset", definition, cells, width, chance, noise: { p, q: chance } }, (own, stream) => {
    const others = Array.from({ length: cells }, (_, cell) => cell).filter((cell) => cell !== own);
    const drawn = happens(chance, stream) ? [own] : [];
    // The beginning of a Fisher-Yates shuffle.
    for (let i = 0; drawn.length < width; i++) {
      const j = i + uniformBelow(others.length - i, stream);
      [others[i], others[j]] = [others[j], others[i]];
      drawn.push(others[i]);
    }
    return drawn;
  });
}

/**
 * One of d cells, in a window of w cells from a number's position on with probability q, else uniform among the others:
 * the piecewise mechanism (Wang et al. 2019, section III) on a grid, whose positions are 0 to d - w.
 * @param {number} cells d @param {number} width w @param {number} chance q
 */
export function windowOf(cells, width, chance) {
  const noise = { p: (1 - chance) / (cells - width), q: chance / width };
  const definition = { response: "window", chance };
  return cellsResponse({ name: "window", definition, cells, width, chance, noise }, (position, stream) => {
    if (happens(chance, stream)) return [position + uniformBelow(width, stream)];
    const cell = uniformBelow(cells - width, stream);
    return [cell < position ? cell : cell + width];
  });
}

/**
 * Toss one exact coin: compare a uniform number with a chance below 1, byte by byte. All steps are exact: a double
 * times 256 has the same digits, and its fraction fewer.
 * @param {number} chance @param {ByteStream} stream
 */
function happens(chance, stream) {
  const drawn = new Uint8Array(1);
  for (let rest = chance; rest > 0; ) {
    rest *= 256;
    const digit = Math.floor(rest);
    stream.fill(drawn);
    if (drawn[0] !== digit) return drawn[0] < digit;
    rest -= digit;
  }
  return false;
}
