"""google/rappor's association files -> a result.

Candidates are read before reports, so that the mistakes that are quickly found come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hubbub.decoder.reports.loading import require_enough
from hubbub.inference.association.decoding import AssociationSummary, decode_association
from hubbub.inference.association.reports import STRING
from hubbub.inference.joint.decoding import JointDecoding
from hubbub.inference.params import DecodingParams
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.errors import OptionError
from hubbub.rappor.association_files import AssociationSchema, read_reports, read_schema
from hubbub.rappor.csv_files import read_params
from hubbub.rappor.map_files import read_map
from hubbub.reporting.wording import detected_line, epsilon_lines


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
    files: AssociationFiles, *, alpha: float, correction: Correction, min_reports: int
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
        needed = " ".join(f"--map {name}=FILE" for name in strings) or "no --map"
        raise OptionError(f"{files.schema}: metric {schema.metric!r} needs {needed}, and no other.")
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
    decoding = decode_association(reports, candidates, alpha=alpha, correction=correction)
    return Decoded(decoding, schema, params, path, tuple(notes))


def facts_of(decoding: JointDecoding) -> dict[str, str]:
    """Return the summary's lines by what they are about."""
    summary = decoding.summary
    lines = {
        "reports": f"{summary.reports:,}",
        **epsilon_lines(summary.epsilon_report, summary.epsilon_permanent),
    }
    if isinstance(summary, AssociationSummary):
        lines["cells"] = f"{summary.cells:,}"
        lines["detected"] = detected_line(summary.detected, summary.correction, summary.alpha)
        lines["method"] = f"likelihood of all variables' bits together, {summary.passes} passes"
        for name, n in summary.left_out.items():
            lines[f"left out of {name}"] = f"{n:,} strings, the weakest; they count as Other"
    return lines
