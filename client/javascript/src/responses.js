/**
 * How a value's bits are blurred: the responses that a metric can have, and what each promises.
 *
 * `Unary` gives every bit noise of its own, once or twice: it is RAPPOR. `Subset` and `Window` draw a whole
 * report at once, from as many cells as there are categories or outputs, and can be asked once per answer
 * only.
 */

import { bernoulli, exactChance } from "./bernoulli.js";
import { filterOf } from "./bloom.js";
import { drawInWindow, drawSubset } from "./cells.js";

/** @typedef {import("./metric-type.js").MetricType} MetricType */
/** @typedef {import("./metric-type.js").RapporParams} RapporParams */
/** @typedef {import("./bernoulli.js").ByteStream} ByteStream */

/**
 * One way to answer.
 *
 * @typedef {object} Response
 * @property {string} name
 * @property {() => Record<string, unknown>} definition what, besides the parameters, reports depend on
 * @property {(type: MetricType, params: RapporParams) => number} epsilonPermanent what all reports of one
 *   answer reveal
 * @property {(type: MetricType, params: RapporParams) => number} epsilonReport what one report reveals
 * @property {(type: MetricType, params: RapporParams, reports: number) => number} epsilonAfter what so
 *   many reports of one answer reveal
 * @property {(params: RapporParams) => (permanent: Uint8Array, stream: ByteStream) => Uint8Array} drawer
 *   returns what draws a report of an answer
 */

/** Every bit has noise of its own: a permanent response, an instantaneous one, or both. @type {Response} */
export const UNARY = Object.freeze({
  name: "unary",
  definition: () => ({}),
  epsilonPermanent: (type, params) => type.epsilonPermanent(params),
  epsilonReport: (type, params) => type.epsilonReport(params),
  epsilonAfter: (type, params, reports) => type.epsilonAfter(params, reports),
  drawer: ({ p, q }) => {
    const [low, high] = [exactChance(p), exactChance(q)];
    return (permanent, stream) => bernoulli(low, high, permanent, stream);
  },
});

/**
 * A report in which a fixed number of cells is set: w outcomes of one kind are favoured, with probability q,
 * and d - w aren't, so that no report is more than q (d - w) / ((1 - q) w) times as probable under one value as
 * under another.
 */
class Cells {
  /**
   * @param {number} cells d, at least 2 @param {number} width w, from 1 to d - 1
   * @param {number} chance q, above w/d and below 1: of the outcomes that favour the value
   */
  constructor(cells, width, chance) {
    this.cells = cells;
    this.width = width;
    this.chance = chance;
  }

  epsilonReport() {
    const { cells, width, chance } = this;
    return Math.log(chance * (cells - width)) - Math.log((1 - chance) * width);
  }

  /** Each report would be drawn from the value itself. */
  epsilonPermanent() {
    return Infinity;
  }

  /** @param {MetricType} _type @param {RapporParams} _params @param {number} reports */
  epsilonAfter(_type, _params, reports) {
    return reports * this.epsilonReport();
  }

  /** @param {RapporParams} params @returns {(permanent: Uint8Array, stream: ByteStream) => Uint8Array} */
  drawer({ k }) {
    return (permanent, stream) => filterOf(this.draw(bitOf(permanent), stream), k);
  }

  /**
   * @param {number} _own the category or position @param {ByteStream} _stream
   * @returns {number[]} the cells that are set
   */
  draw(_own, _stream) {
    throw new TypeError("defines no reports");
  }
}

/**
 * Subset selection: a set of w categories that holds one's own with probability q; the others are uniform among
 * those that are left. w = 1 is generalized randomized response.
 */
export class Subset extends Cells {
  name = "subset";

  /** @returns {{p: number, q: number}} with which chances a set holds another, and one's own category */
  noise() {
    const { cells, width, chance } = this;
    const other = (chance * (width - 1) + (1 - chance) * width) / (cells - 1);
    return { p: other, q: chance };
  }

  definition() {
    return { response: "subset", size: this.width };
  }

  /** @override @param {number} own @param {ByteStream} stream */
  draw(own, stream) {
    return drawSubset(this, own, stream);
  }
}

/**
 * One cell, in a window of w cells from a number's position on with probability q, else uniform among the
 * others: the piecewise mechanism on a grid, whose positions are 0 to d - w.
 */
export class Window extends Cells {
  name = "window";

  /** @returns {{p: number, q: number}} with which chances a cell outside and one inside is reported */
  noise() {
    const { cells, width, chance } = this;
    return { p: (1 - chance) / (cells - width), q: chance / width };
  }

  definition() {
    return { response: "window", chance: this.chance };
  }

  /** @override @param {number} own @param {ByteStream} stream */
  draw(own, stream) {
    return drawInWindow(this, own, stream);
  }
}

/** @param {Uint8Array} bits of which one is set @returns {number} its place */
function bitOf(bits) {
  const byte = bits.findIndex((each) => each !== 0);
  return 8 * byte + Math.log2(bits[byte]);
}
