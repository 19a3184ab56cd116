"""The type "open-string": strings that nobody listed, found prefix by prefix."""

from __future__ import annotations

from typing import cast

from hubbub.decoder.metric_types.refusals import refuse_beyond_counts
from hubbub.decoder.type_decoder import Job, TypeDecoder
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.inference.ratios import Ratios, filter_ratios
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.reporting.open_strings import open_estimates
from hubbub.reporting.result import Result

METHOD = "prefixes step by step, then least squares"


class OpenStringDecoder(TypeDecoder[OpenStringType]):
    """A search from short prefixes to whole strings, and a test of these."""

    finds_strings = True

    def refusal(self, job: Job) -> str | None:
        """Refuse maps, whole reports and days."""
        what = f"metrics.{job.metric.name}.type = {job.metric.type.name!r}"
        for name in job.named("map"):
            return f"{name}: must be left out; {what} has positions at several steps."
        return refuse_beyond_counts(job, what, "hashes candidates at several steps")

    def decode(self, job: Job) -> Result:
        """Find the strings, and estimate how often each occurs."""
        outputs, given = job.outputs, job.given_strings()
        reports = job.reports()
        with job.search_progress() as update:
            found = decode_open_strings(
                reports.counts,
                job.metric.params,
                cast("OpenStringType", job.metric.type),
                candidates=given,
                below=outputs.extend,
                alpha=outputs.alpha,
                correction=Correction(outputs.correction),
                progress=update,
            )
        origin = job.provenance(reports, method=METHOD, strings=given)
        return open_estimates(found, reports.anomalies, origin, outputs.detected_only, outputs.rows)

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of two filters of a bit each: both play the same part."""
        return (filter_ratios(params, reports),)
