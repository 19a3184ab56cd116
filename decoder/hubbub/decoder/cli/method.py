"""By which method strings are decoded: least squares on counts, or whole reports' likelihood."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from hubbub.client.params import RapporParams
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.decoding import Decoding
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.likelihood.cells import require_tabulable
from hubbub.decoder.likelihood.choice import is_worthwhile
from hubbub.decoder.likelihood.decoding import decode_reports
from hubbub.decoder.reports.packed import PackedReports, ReportSpool

ASKED_FOR = "as asked for"
ONLY_COUNTS = "there are bit counts only"
TOO_LITTLE = "so few whole reports tell too little at these parameters"


class Method(enum.StrEnum):
    """What the operator wants."""

    AUTO = "auto"
    LIKELIHOOD = "likelihood"
    REGRESSION = "regression"


@dataclass(slots=True)
class Choice:
    """Decides, once it is known how many reports there are, and remembers why.

    Attributes
    ----------
    method : Method
    params : RapporParams
    n_candidates : int
    reason : str
        Why the method that was chosen was chosen.
    """

    method: Method
    params: RapporParams
    n_candidates: int
    reason: str = ONLY_COUNTS

    def spool_for(self, n_reports: int) -> ReportSpool | None:
        """Return what keeps whole reports, or None if their counts are enough.

        Raises
        ------
        UndecodableError
            If the likelihood is asked for, but filters have too many sets of bits.
        """
        if self.method is Method.AUTO:
            wanted, self.reason = is_worthwhile(self.params, n_reports, self.n_candidates)
            return ReportSpool(self.params) if wanted else None
        self.reason = ASKED_FOR
        if self.method is Method.REGRESSION:
            return None
        require_tabulable(self.params)
        return ReportSpool(self.params)

    def complete(
        self,
        counted: Decoding,
        reports: PackedReports | None,
        candidates: Candidates,
        progress: Callable[[int, float], None],
    ) -> Decoding:
        """Return the decoding of the chosen method.

        Parameters
        ----------
        counted : Decoding
            By least squares.
        reports : PackedReports, optional
            None if least squares was chosen.
        candidates : Candidates
        progress : callable
            Called with passes over the reports so far and the duality gap that is left.

        Raises
        ------
        UndecodableError
            If the likelihood is asked for, but the reports tell it too little.
        """
        if reports is not None:
            reason = self.reason
            try:
                return decode_reports(
                    reports, counted, candidates, reason=reason, progress=progress
                )
            except UndecodableError:
                if self.method is not Method.AUTO:
                    raise
                self.reason = TOO_LITTLE
        return replace(counted, summary=replace(counted.summary, method_reason=self.reason))
