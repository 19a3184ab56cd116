"""The type "joint": several fields as one value, decoded to a table of what goes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hubbub.decoder.candidates import CandidateLists, field_lists
from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import DecodeInput, Observer, TypeDecoder, refuse_beyond_counts
from hubbub.inference import (
    AnomalyReport,
    CategoryDecoding,
    FieldLabels,
    JointDecoding,
    decode_joint,
)
from hubbub.protocol import JointType, Metric, OptionError, StringType
from hubbub.reporting import Estimates, Finding, category_findings, joint_estimates, string_findings


class JointDecoder(TypeDecoder[JointType]):
    """Cells, and from them margins, conditional shares and departures from independence."""

    follows_days = False

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse maps, whole reports, days, and candidates where all values are listed."""
        what = f"metrics.{metric.name}.type = 'joint'"
        listed = not string_fields(cast("JointType", metric.type))
        for name in options.given(*(["map", "candidates"] if listed else ["map"])):
            text = f": must be left out; {what}, and its fields say which values there are."
            raise OptionError(name, text)
        refuse_beyond_counts(options, what)

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read a list for each field of strings."""
        names = string_fields(cast("JointType", metric.type))
        return field_lists(options, metric, names) if names else CandidateLists()

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Estimate the table."""
        metric_type = cast("JointType", data.metric.type)
        found = decode_joint(
            data.reports.counts,
            data.metric,
            field_labels(metric_type, data.candidates.by_field),
            alpha=data.options.alpha,
            correction=data.correction,
            repeats=data.repeats,
        )
        anomalies, detected_only, rows = data.shown
        findings = _findings(found, anomalies)
        provenance = data.made_by("one value a tuple")
        return joint_estimates(found, findings, anomalies, provenance, detected_only, rows)


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


def _findings(found: JointDecoding, anomalies: AnomalyReport | None) -> tuple[Finding, ...]:
    """Return the findings on the reports; the table's cells were looked for."""
    source = found.source
    if isinstance(source, CategoryDecoding):
        findings = category_findings(source, anomalies)
    else:
        findings = string_findings(source, anomalies)
    return tuple(
        each._replace(code="cells", label="cells")
        if each.code in {"categories", "candidates"}
        else each
        for each in findings
    )
