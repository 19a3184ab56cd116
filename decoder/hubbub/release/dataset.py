"""A table and its ledger: queries are paid for, then answered.

A query makes its mechanism without data, reads the rows that it needs, commits the cost to the
ledger, and only then draws noise. Invariant: nothing leaves this module that a mechanism didn't
release, and nothing is released before its spend is on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from hubbub.inference import FloatArray
from hubbub.release import tables
from hubbub.release.errors import DataError, LedgerError, QueryError
from hubbub.release.estimators import run_estimator
from hubbub.release.ledger import Composition, Ledger
from hubbub.release.mechanisms import counts, selection
from hubbub.release.mechanisms.counts import Mechanism
from hubbub.release.noise import Cost, delta_of, epsilon_of, fraction
from hubbub.release.result import Query, release_estimates
from hubbub.release.tables import Declaration, Excess, Role, UserRows, unique
from hubbub.reporting import Estimates, visible

_Data = TypeVar("_Data")
_Number = float | str | Fraction
OPTIONS = 65_536
"""Values between a column's bounds that a quantile is chosen from."""


class Dataset:
    """A table that may be asked as long as its budget lasts; use as a context manager.

    One user's rows, at most `rows_per_user` of them, are what is protected: with a total cost of
    (epsilon, delta), no set of results is more than e^epsilon times as likely with these rows as
    without them, apart from a probability of delta (Dwork, McSherry, Nissim, Smith 2006). Budgets
    are exact: 0.1 is a tenth, and "1/3" a third.

    Attributes
    ----------
    ledger : Ledger
    declaration : Declaration

    Examples
    --------
    >>> people = Dataset.create("people.csv", ledger="people.ledger", user_column="user", epsilon=2)
    >>> with people:
    ...     counted = people.count(epsilon=1)
    >>> counted["value"][0]  # doctest: +ELLIPSIS
    10...
    """

    def __init__(self, ledger: Ledger, data: Path | None = None) -> None:
        self.ledger = ledger
        self.declaration = Declaration.from_json(ledger.declaration)
        self._data = data or self.declaration.data
        self._unchanged: object = None

    @classmethod
    def create(
        cls,
        data: str | PathLike[str],
        *,
        ledger: str | PathLike[str],
        user_column: str,
        epsilon: _Number,
        delta: _Number = 0,
        rows_per_user: int = 1,
        excess: str = "sample",
        columns: Sequence[str] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        bins: Mapping[str, Sequence[str]] | None = None,
        composition: str = "basic",
    ) -> Dataset:
        """Declare a table and make its ledger.

        Parameters
        ----------
        data : path
            A file (.parquet, .csv, .csv.gz, .arrow, .feather), or a directory of files of one form.
        ledger : path
            A file that doesn't exist yet.
        user_column : str
            Names the person whom a row belongs to: text or whole numbers.
        epsilon, delta : number or str
            The whole budget. delta is about the chance of a disaster: far below 1 / users.
        rows_per_user : int
            Most rows of a user that count.
        excess : "sample" or "refuse"
            Whether of a user with more rows some are drawn, by a key that the ledger keeps, or the
            table is refused.
        columns : sequence of str, optional
            That may be asked for; by default all.
        bounds : mapping of str to (float, float)
            Ranges of columns of numbers. Chosen without looking at the data, as bins.
        bins : mapping of str to sequence of str
            Public keys of columns.
        composition : "basic" or "zcdp"
            How costs add up (`hubbub.release.ledger`), for good.

        Raises
        ------
        DataError
            If the data can't be read, or a user has too many rows.
        QueryError
            If an argument makes no sense.
        LedgerError
            If the ledger already exists, or can't be made.
        """
        path = Path(data)
        total = Cost(epsilon_of(epsilon), delta_of(delta))
        how = _choice(Composition, "composition", composition)
        if how is Composition.ZCDP and not total.delta:
            raise QueryError("delta = 0: must be above 0 for zCDP composition; or take basic")
        if path.is_dir() and Path(ledger).absolute().is_relative_to(path.absolute()):
            raise LedgerError(f"{ledger}: must not be in {path}, whose files are the data")
        there = tables.column_names(path, user_column)
        if absent := [column for column in columns or () if column not in there]:
            names = ", ".join(map(visible, sorted(there))) or "none"
            raise QueryError(f"columns: no column is named {absent[0]!r}; there are: {names}")
        declaration = Declaration(
            data=path.absolute(),
            user_column=user_column,
            columns=there if columns is None else tuple(columns),
            rows_per_user=rows_per_user,
            excess=_choice(Excess, "excess", excess),
            bounds={c: (float(low), float(high)) for c, (low, high) in (bounds or {}).items()},
            bins={
                column: unique(f"bins of {column}", keys) for column, keys in (bins or {}).items()
            },
        )
        for low, high in declaration.bounds.values():
            counts.lattice(low, high)  # which refuses what sums would overflow by
        roles = dict.fromkeys(declaration.bounds, Role.NUMBERS)
        rows = tables.load(path, user_column, roles)
        for column in declaration.bounds:
            if not len(rows.numbers(column)):
                raise QueryError(f"bounds of {visible(column)}: none of its values is a number")
        tables.refuse_excess(rows, declaration)
        facts = declaration.as_json(), tables.digest(path)
        return cls(Ledger.create(Path(ledger), total.epsilon, total.delta, how, *facts))

    @classmethod
    def open(
        cls, ledger: str | PathLike[str], *, data: str | PathLike[str] | None = None
    ) -> Dataset:
        """Open a ledger and its table.

        Parameters
        ----------
        ledger : path
            What `hubbub-release init` or `Dataset.create` made.
        data : path, optional
            Where the table is now, if it was moved.

        Raises
        ------
        LedgerError
            If there is no ledger.
        """
        return cls(Ledger.open(Path(ledger)), None if data is None else Path(data))

    def count(
        self, column: str | None = None, *, epsilon: _Number, delta: _Number = 0
    ) -> Estimates:
        """Release the number of rows, or of those in which a column isn't null.

        Discrete Laplace noise, or Gaussian with a delta (`hubbub.release.mechanisms.counts.count`).

        Parameters
        ----------
        column : str, optional
            Whose empty cells don't count; by default all rows do.
        epsilon : number or str
            What the release may cost of the ledger's epsilon, exactly.
        delta : number or str
            What it may cost of the ledger's delta; above 0, the noise is Gaussian.

        Raises
        ------
        QueryError, BudgetError, DataError
            As all queries: for arguments that make no sense, beyond the budget, and if the data
            changed since the ledger was made. Then nothing was spent.
        """
        price = self._price(epsilon, delta)
        if column is not None:
            self.declaration.require("count", column)
        mechanism = counts.count(**price)
        subject = "the number of rows" + (f" with {column}" if column else "")
        query = Query("count", column or "", subject)
        if column is None:
            return self._release(query, mechanism, {}, _all_rows, len)
        roles, countable, keys = _keys_of(column)
        return self._release(query, mechanism, roles, countable, lambda rows: len(keys(rows)))

    def sum(self, column: str, *, epsilon: _Number, delta: _Number = 0) -> Estimates:
        """Release a column's sum, each value clipped to the declared bounds.

        `hubbub.release.mechanisms.counts.bounded_sum`; raises as `count`.

        Parameters
        ----------
        column : str
            One of the columns that were declared with bounds.
        epsilon, delta : number or str
            As for `count`.
        """
        price = self._price(epsilon, delta)
        mechanism = counts.bounded_sum(self._lattice("sum", column), **price)
        query = Query("sum", column, f"the sum of {column}")
        return self._release(query, mechanism, *_numbers_of(column))

    def mean(self, column: str, *, epsilon: _Number, delta: _Number = 0) -> Estimates:
        """Release a column's mean, each value clipped to the declared bounds.

        `hubbub.release.mechanisms.counts.bounded_mean`; raises as `count`.

        Parameters
        ----------
        column : str
            One of the columns that were declared with bounds.
        epsilon, delta : number or str
            As for `count`.
        """
        price = self._price(epsilon, delta)
        mechanism = counts.bounded_mean(self._lattice("mean", column), **price)
        query = Query("mean", column, f"the mean of {column}")
        return self._release(query, mechanism, *_numbers_of(column))

    def histogram(
        self,
        column: str,
        *,
        epsilon: _Number,
        delta: _Number = 0,
        bins: Sequence[str] | None = None,
        edges: Sequence[float] | None = None,
        other: str | None = None,
        total: bool = False,
    ) -> Estimates:
        """Release the number of rows of each key.

        Keys are the public `bins`, or those that were declared; without any, the keys that enough
        users have (`hubbub.release.mechanisms.counts`), for which delta must be above 0.

        Parameters
        ----------
        column : str
            One of the declared columns.
        epsilon, delta : number or str
            As for `count`; delta must be above 0 if there are no public keys.
        bins : sequence of str, optional
            Public keys; by default those that were declared, if any were.
        edges : sequence of float, optional
            Ends of the buckets that are counted instead of keys, of a column with declared bounds.
            The first and the last bucket are open, so that all numbers are in one.
        other : str, optional
            Counts all rows with other keys than the public ones, which are left out without it.
        total : bool
            Whether the number of rows with any key is released as well, for a tenth of epsilon. It
            makes shares of counts.
        """
        cost, most = _cost(epsilon, delta), self.declaration.rows_per_user
        self.declaration.require("histogram", column)
        if edges is not None and (bins is not None or other is not None):
            raise QueryError("edges: must be left out where there are bins or others")
        if edges is not None and column not in self.declaration.bounds:
            # The declaration decides and not the cells, so that no person's cell does.
            raise QueryError(
                f"edges: {visible(column)} isn't declared as a column of numbers; declare its "
                f"range when the ledger is made: --bounds {visible(column)}=LOW:HIGH"
            )
        keys = self._bins(column, bins) if edges is None else counts.buckets(edges)
        if other is not None:
            (other,) = unique("other", [other])
            if keys is None or other in keys:
                raise QueryError(f"other = {other!r}: must come with public keys, and not be one")
            keys = (*keys, other)
        of_total = cost.epsilon * counts.FOR_TOTAL if total else Fraction(0)
        epsilon, delta = cost.epsilon - of_total, cost.delta
        if keys is None:
            mechanism = counts.thresholded_histogram(
                rows_per_user=most, epsilon=epsilon, delta=delta
            )
        else:
            mechanism = counts.histogram(keys, rows_per_user=most, epsilon=epsilon, delta=delta)
        if total:
            mechanism = counts.with_total(mechanism, rows_per_user=most, epsilon=of_total)
        public = frozenset(keys or ())

        def keys_of(rows: UserRows) -> list[str]:
            if edges is not None:
                return counts.bucketed(rows.numbers(column), edges)
            found = rows.keys(column)
            return found if other is None else [k if k in public else other for k in found]

        query = Query("histogram", column, f"rows by {column}", keyed=True, total=total)
        counted = None if total or other is not None else keys
        roles, countable, _ = _keys_of(column, counted) if edges is None else _numbers_of(column)
        return self._release(query, mechanism, roles, countable, keys_of)

    def quantile(
        self, column: str, level: _Number = "1/2", *, epsilon: _Number, options: int = OPTIONS
    ) -> Estimates:
        """Release a column's quantile by the exponential mechanism; "1/2" is the median.

        `hubbub.release.mechanisms.selection.quantile`; raises as `count`. Of quantiles it is the
        best way by far: `median_by_test` is there to be compared with.

        Parameters
        ----------
        column : str
            One of the columns that were declared with bounds.
        level : number or str
            Share of values below, in (0, 1): "1/2", "1/3", 0.95.
        epsilon : number or str
            As for `count`.
        options : int
            Values to choose from, evenly spaced from bound to bound: of whole numbers from 0 to 120
            take 121.
        """
        share, price = fraction("level", level), epsilon_of(epsilon)
        self.declaration.require("quantile", column)
        mechanism = selection.quantile(
            *self.declaration.bounds_of(column),
            share,
            options=options,
            rows_per_user=self.declaration.rows_per_user,
            epsilon=price,
        )
        name = "median" if share == Fraction(1, 2) else f"quantile of {float(share):g}"
        query = Query("quantile", column, f"the {name} of {column}")
        return self._release(query, mechanism, *_numbers_of(column))

    def median_by_test(
        self, column: str, width: float, *, epsilon: _Number, delta: _Number
    ) -> Estimates:
        """Release a column's median by propose-test-release, if one user moves it little.

        `hubbub.release.mechanisms.selection.median_by_test`; raises as `count`.

        Parameters
        ----------
        column : str
            One of the columns that were declared with bounds.
        width : float
            A proposed bound on what one user moves it by, chosen without looking at the data.
        epsilon, delta : number or str
            As for `count`; delta is above 0.
        """
        price, bounds = self._price(epsilon, delta), self._lattice("quantile", column)
        mechanism = selection.median_by_test(bounds, width, **price)
        query = Query("quantile", column, f"the median of {column}")
        return self._release(query, mechanism, *_numbers_of(column))

    def mode(
        self,
        column: str,
        *,
        epsilon: _Number,
        delta: _Number = 0,
        options: Sequence[str] | None = None,
    ) -> Estimates:
        """Release about the most common key, without its number.

        Of public keys (`options`, or those that were declared) by report noisy max
        (`hubbub.release.mechanisms.selection.most_common`). Without any, for which delta must be
        above 0, the most common key of all if it leads by far
        (`hubbub.release.mechanisms.selection.stable_mode`). Raises as `count`.

        Parameters
        ----------
        column : str
            One of the declared columns.
        epsilon, delta : number or str
            As for `count`; delta is 0 with public keys, above 0 without.
        options : sequence of str, optional
            Public keys; by default those that were declared, if any were.
        """
        price = self._price(epsilon, delta)
        self.declaration.require("mode", column)
        keys = self._bins(column, options)
        query = Query("mode", column, f"the most common {column}")
        if keys is None:
            mechanism = selection.stable_mode(**price)
        elif of_delta := price.pop("delta"):
            raise QueryError(f"delta = {float(of_delta):g}: must be 0 where keys are public")
        else:
            mechanism = selection.most_common(keys, 1, **price)
        return self._release(query, mechanism, *_keys_of(column, keys))

    def topk(
        self, column: str, best: int, *, epsilon: _Number, options: Sequence[str] | None = None
    ) -> Estimates:
        """Release about the most common of public keys, the commonest first.

        `hubbub.release.mechanisms.selection.most_common`; raises as `count`.

        Parameters
        ----------
        column : str
            One of the declared columns.
        best : int
            How many keys are released.
        epsilon : number or str
            As for `count`.
        options : sequence of str, optional
            By default the column's declared bins.
        """
        price = epsilon_of(epsilon)
        self.declaration.require("topk", column)
        keys = self._bins(column, options)
        if keys is None:
            raise QueryError(
                f"topk: {column} has no public keys to choose from; name them, or take the largest "
                "of a histogram"
            )
        mechanism = selection.most_common(
            keys, best, rows_per_user=self.declaration.rows_per_user, epsilon=price
        )
        query = Query("topk", column, f"the {best:,} most common of {column}")
        return self._release(query, mechanism, *_keys_of(column, keys))

    def aggregate(
        self,
        estimator: str,
        limits: tuple[float, float],
        *,
        epsilon: _Number,
        delta: _Number = 0,
        blocks: int = 200,
        method: str = "median",
        columns: Sequence[str] | None = None,
        options: int = OPTIONS,
        default: float | None = None,
        seconds: float = 60.0,
        processes: int | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Estimates:
        """Release the result of any function of the data, by subsample-and-aggregate.

        Users are partitioned into blocks, the function estimates something of each block in a
        process of its own (`hubbub.release.estimators`), and the estimates' median, mean or mode is
        released (`hubbub.release.mechanisms.selection`). It need not be private. Raises as
        `count`.

        Parameters
        ----------
        estimator : str
            "module:function"; gets columns by name as arrays, and returns a number. Columns with
            declared bounds are float64 (not clipped; nan for null), others text (None for null).
        limits : (float, float)
            Between which the answer lies; public.
        epsilon, delta : number or str
            As for `count`; delta is 0 for a median.
        blocks : int
            More of them need less noise, but make each estimate worse.
        method : "median", "mean" or "mode"
            By the exponential mechanism; with noise, of estimates clipped to the limits; the most
            common one, if it leads by far.
        columns : sequence of str, optional
            Those that the function gets; by default all.
        options : int
            Values between the limits that a median is chosen from.
        default : float, optional
            Estimate of blocks for which the function fails; by default the middle of the limits.
        seconds : float
            Until a block's process is killed, and its estimate is the default.
        processes : int, optional
            That run at the same time; by default one per core.
        progress : callable
            Gets how many of how many blocks are done.
        """
        cost, (low, high) = _cost(epsilon, delta), limits
        bounds = counts.lattice(low, high)
        if method not in {"median", "mean", "mode"}:
            raise QueryError(f"method = {method!r}: must be 'median', 'mean' or 'mode'")
        if blocks < 1:
            raise QueryError(f"blocks = {blocks}: must be at least 1")
        if method == "median" and cost.delta:
            raise QueryError(f"delta = {float(cost.delta):g}: must be 0 for a median")
        if method == "median":
            mechanism = selection.aggregate_median(low, high, options=options, epsilon=cost.epsilon)
        elif method == "mean":
            mechanism = selection.aggregate_mean(
                bounds, blocks=blocks, epsilon=cost.epsilon, delta=cost.delta
            )
        else:
            mechanism = selection.aggregate_mode(epsilon=cost.epsilon, delta=cost.delta)
        wanted = self.declaration.columns if columns is None else tuple(columns)
        for column in wanted:
            self.declaration.require("columns", column)
        bounded = self.declaration.bounds
        roles = {name: Role.NUMBERS if name in bounded else Role.KEYS for name in wanted}

        def estimates(rows: UserRows) -> FloatArray:
            return run_estimator(
                estimator,
                rows.blocks(blocks, self.ledger.secret),
                default=(low + high) / 2 if default is None else default,
                seconds=seconds,
                processes=processes or os.cpu_count() or 1,
                progress=progress,
            )

        query = Query("aggregate", ", ".join(columns or ()), f"the {method} of {estimator}")
        return self._release(query, mechanism, roles, _all_rows, estimates)

    def candidates(self, column: str, *, epsilon: _Number, delta: _Number) -> Estimates:
        """Release the keys that enough users have, as candidates for `hubbub-decoder decode`.

        Parameters
        ----------
        column : str
            One of the declared columns.
        epsilon, delta : number or str
            As for `count`; delta is above 0.
        """
        price = self._price(epsilon, delta)
        self.declaration.require("candidates", column)
        query = Query("candidates", column, f"rows by {column}", keyed=True)
        mechanism = counts.thresholded_histogram(**price)
        return self._release(query, mechanism, *_keys_of(column))

    def _release(
        self,
        query: Query,
        mechanism: Mechanism[_Data],
        roles: Mapping[str, Role],
        countable: Callable[[UserRows], UserRows],
        data_of: Callable[[UserRows], _Data],
    ) -> Estimates:
        """Pay for a query, then answer it.

        `countable`: the rows that can count, among which each user's are drawn. `data_of`: what the
        mechanism gets of those that were drawn.
        """
        self.ledger.refuse_beyond(query.text, mechanism.cost)
        rows = countable(self._rows(roles))
        most = self.declaration.rows_per_user
        data = data_of(tables.limited(rows, most, self.ledger.secret))
        self.ledger.spend(query.text, mechanism.name, mechanism.cost, self.ledger.digest)
        released = mechanism(data)
        return release_estimates(query, mechanism, released, self.ledger, most)

    def _rows(self, roles: Mapping[str, Role]) -> UserRows:
        """Return the rows of the data, if they are as they were declared."""
        now = tables.state(self._data)
        if now != self._unchanged:
            if tables.digest(self._data) != self.ledger.digest:
                raise DataError(
                    f"{self._data}: changed since the ledger was made; a changed table is another "
                    "one, and needs a ledger of its own"
                )
            self._unchanged = now
        rows = tables.load(self._data, self.declaration.user_column, roles)
        if tables.state(self._data) != now:
            raise DataError(f"{self._data}: changed while it was read")
        tables.refuse_excess(rows, self.declaration)
        return rows

    def _price(self, epsilon: _Number, delta: _Number) -> dict[str, Any]:
        """Return what most mechanisms take: what may be spent, and how many rows a user has."""
        cost = _cost(epsilon, delta)
        most = self.declaration.rows_per_user
        return {"rows_per_user": most, "epsilon": cost.epsilon, "delta": cost.delta}

    def _lattice(self, query: str, column: str) -> counts.Lattice:
        self.declaration.require(query, column)
        return counts.lattice(*self.declaration.bounds_of(column))

    def _bins(self, column: str, bins: Sequence[str] | None) -> tuple[str, ...] | None:
        if bins is not None:
            return unique("bins", bins)
        return self.declaration.bins.get(column)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def __enter__(self) -> Self:
        """Return the dataset itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self.close()


_Reading = tuple[Mapping[str, Role], Callable[[UserRows], UserRows], Callable[[UserRows], _Data]]
"""The columns read of a table, its rows that can count, and a mechanism's data of those drawn."""


def _keys_of(column: str, keys: Sequence[str] | None = None) -> _Reading[list[str]]:
    countable = partial(UserRows.with_value, column=column, keys=keys)
    return {column: Role.KEYS}, countable, partial(UserRows.keys, column=column)


def _numbers_of(column: str) -> _Reading[FloatArray]:
    countable = partial(UserRows.with_value, column=column)
    return {column: Role.NUMBERS}, countable, partial(UserRows.numbers, column=column)


def _all_rows(rows: UserRows) -> UserRows:
    return rows


def _cost(epsilon: _Number, delta: _Number) -> Cost:
    return Cost(epsilon_of(epsilon), delta_of(delta))


_Choice = TypeVar("_Choice", Composition, Excess)


def _choice(choices: type[_Choice], name: str, value: str) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        some = " or ".join(repr(each.value) for each in choices)
        raise QueryError(f"{name} = {value!r}: must be {some}") from None
