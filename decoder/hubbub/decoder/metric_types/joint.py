"""The type "joint": several fields as one value, decoded to a table of what goes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hubbub.decoder.metric_types.refusals import refuse_beyond_counts
from hubbub.decoder.type_decoder import Job, TypeDecoder
from hubbub.inference.anomalies import AnomalyReport
from hubbub.inference.categories.decoding import CategoryDecoding
from hubbub.inference.joint.decoding import JointDecoding, decode_joint
from hubbub.inference.joint.table import FieldLabels
from hubbub.inference.ratios import Ratios, filter_ratios
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metric_types.joint import JointType
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.params import RapporParams
from hubbub.reporting.categories import summary_lines as lines_of_cells
from hubbub.reporting.joint import JointResult
from hubbub.reporting.result import Result
from hubbub.reporting.strings import summary_lines as lines_of_tuples


class JointDecoder(TypeDecoder[JointType]):
    """Cells, and from them margins, conditional shares and departures from independence."""

    def refusal(self, job: Job) -> str | None:
        """Refuse maps, whole reports, days, and candidates where all values are listed."""
        metric_type = cast("JointType", job.metric.type)
        what = f"metrics.{job.metric.name}.type = 'joint'"
        refused = ["map"] if string_fields(metric_type) else ["map", "candidates"]
        for name in job.named(*refused):
            return f"{name}: must be left out; {what}, and its fields say which values there are."
        return refuse_beyond_counts(job, what, "hashes tuples of values")

    def decode(self, job: Job) -> Result:
        """Estimate the table."""
        metric_type, outputs = cast("JointType", job.metric.type), job.outputs
        names = string_fields(metric_type)
        given = job.strings_by_field(names) if names else {}
        reports = job.reports()
        found = decode_joint(
            reports.counts,
            job.metric,
            field_labels(metric_type, given),
            alpha=outputs.alpha,
            correction=Correction(outputs.correction),
        )
        strings = [string for listed in given.values() for string in listed]
        origin = job.provenance(reports, method="one value a tuple", strings=strings)
        facts = _facts(found, reports.anomalies)
        return JointResult(
            found, reports.anomalies, origin, outputs.detected_only, outputs.rows, facts
        )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of two tuples without a common bit: both play the same part."""
        return (filter_ratios(params, reports),)


def string_fields(metric_type: JointType) -> list[str]:
    """Return the names of the fields whose values aren't listed."""
    return [field.name for field in metric_type.fields if isinstance(field.type, StringType)]


def field_labels(
    metric_type: JointType, strings: Mapping[str, tuple[str, ...]]
) -> tuple[FieldLabels, ...]:
    """Return the fields with all their values; of string fields, the given candidates."""
    return tuple(
        FieldLabels(field.name, strings.get(field.name) or field.type.listed_values().labels)
        for field in metric_type.fields
    )


def _facts(found: JointDecoding, anomalies: AnomalyReport | None) -> dict[str, str]:
    source = found.source
    if source is None:
        return {}
    if isinstance(source, CategoryDecoding):
        lines = lines_of_cells(source, anomalies)
    else:
        lines = lines_of_tuples(source, anomalies)
    names = {"categories": "cells", "candidates": "cells"}
    return {names.get(label, label): text for label, text in lines.items()}
