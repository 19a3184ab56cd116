"""google/rappor's association files -> a result.

Candidates are read before reports, so that the mistakes that are quickly found come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.reports.loading import require_enough
from hubbub.decoder.type_decoder import Observer
from hubbub.inference.association.decoding import AssociationSummary, decode_association
from hubbub.inference.association.reports import STRING
from hubbub.inference.joint.decoding import JointDecoding
from hubbub.inference.params import DecodingParams
from hubbub.inference.repeated_reports import Estimand, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.errors import Option, OptionError
from hubbub.protocol.plurals import counted
from hubbub.rappor.association_files import AssociationSchema, read_reports, read_schema
from hubbub.rappor.csv_files import read_params
from hubbub.rappor.map_files import read_map
from hubbub.reporting.estimates import Estimates, Finding
from hubbub.reporting.joint import joint_estimates
from hubbub.reporting.provenance import Provenance, canonical, digest, file_source
from hubbub.reporting.wording import detected_finding, epsilon_findings, estimand_finding


class AssociationFiles(NamedTuple):
    """Where everything is.

    Attributes
    ----------
    metric : str, optional
        Which of the schema's metrics; it may have only one.
    params : str, optional
        Instead of the file that the schema names.
    maps : mapping of str to str
        The map of each string variable.
    """

    schema: str
    reports: str
    maps: Mapping[str, str]
    metric: str | None = None
    params: str | None = None


class Decoded(NamedTuple):
    """A table, and what it is of."""

    decoding: JointDecoding
    schema: AssociationSchema
    params: DecodingParams
    params_path: Path
    notes: tuple[str, ...]


def decode_files(
    files: AssociationFiles,
    *,
    alpha: float,
    correction: Correction,
    min_reports: int,
    estimand: Estimand = Estimand.POPULATION,
) -> Decoded:
    """Read the files and estimate the table.

    Raises
    ------
    OptionError
        If a string variable has no map, or a map no variable.
    InputError, UndecodableError, OSError
        If a file isn't what it should be; if there are too few reports.
    """
    schema = read_schema(Path(files.schema), files.metric)
    strings = [each.name for each in schema.variables if each.type == STRING]
    if files.maps.keys() != set(strings):
        needed = [part for name in strings for part in (" ", Option("map", "FILE", name))]
        raise OptionError(
            f"{files.schema}: metric {schema.metric!r} needs",
            *(needed or [" no ", Option("map")]),
            ", and no other.",
        )
    path = Path(files.params) if files.params else schema.params
    params = read_params(path)
    candidates, notes = {}, []
    for name in strings:
        found = read_map(Path(files.maps[name]), params, str(path))
        candidates[name] = found.candidates
        if found.repeats:
            notes.append(f"{found.repeats:,} repeated candidates of {name} left out")
    reports = read_reports(Path(files.reports), schema.variables, params)
    require_enough(files.reports, reports.total, min_reports)
    repeats = RepeatedReports(estimand=estimand)
    decoding = decode_association(
        reports, candidates, alpha=alpha, correction=correction, repeats=repeats
    )
    return Decoded(decoding, schema, params, path, tuple(notes))


def association_findings(decoding: JointDecoding) -> tuple[Finding, ...]:
    """Return what was looked for, and how.

    Parameters
    ----------
    decoding : JointDecoding
        Of google/rappor's reports.
    """
    summary = decoding.summary
    findings = [
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
    ]
    if isinstance(summary, AssociationSummary):
        method = f"likelihood of all variables' bits together, {summary.passes} passes"
        findings += [
            Finding("cells", "cells", f"{summary.cells:,}", summary.cells),
            estimand_finding(summary.repeats),
            detected_finding(summary.detected, summary.correction, summary.alpha),
            Finding("method", "method", method),
        ]
        for name, n in summary.left_out.items():
            text = f"{counted(n, 'string')}, the weakest, counted as Other"
            findings.append(Finding("left_out", f"left out of {name}", text, n))
    return tuple(findings)


def decode_variables(
    options: DecodeOptions, observer: Observer, *, provenance: bool = True
) -> Estimates:
    """Decode google/rappor's reports of several variables, which no registry has.

    Parameters
    ----------
    options : DecodeOptions
        With a schema.
    observer : Observer
        Sees notes.
    provenance : bool
        Whether the estimates say where they come from.

    Raises
    ------
    OptionError, InputError, UndecodableError, OSError
        As `decode_files`.
    """
    source, how, given = options.source, options.estimate, options.candidates.map
    maps = given if isinstance(given, Mapping) else {}
    schema, reports = source.schema or "", source.reports or ""
    found = decode_files(
        AssociationFiles(schema, reports, maps, source.metric, source.params),
        alpha=how.alpha,
        correction=Correction(how.correction),
        min_reports=how.min_reports,
        estimand=Estimand(how.estimand),
    )
    for note in found.notes:
        observer.note(note)
    origin = None
    if provenance:
        parameters = found.params._asdict()
        sources = [("schema", schema), ("params", str(found.params_path)), ("reports", reports)]
        sources += [(f"map of {name}", path) for name, path in sorted(maps.items())]
        origin = Provenance(
            metric=found.schema.metric,
            metric_version=None,
            parameters=parameters,
            parameters_sha256=digest(canonical(parameters)),
            settings={
                "alpha": f"{how.alpha:g}",
                "correction": how.correction,
                "method": "likelihood of all variables together",
                "min_reports": f"{how.min_reports}",
                "estimand": how.estimand,
            },
            days="not known",
            sources=tuple(file_source(role, path) for role, path in sources),
        )
    findings = association_findings(found.decoding)
    return joint_estimates(found.decoding, findings, None, origin, how.detected_only, how.rows)
