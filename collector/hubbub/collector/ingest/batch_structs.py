"""From a registry to msgspec structs of its batches: decoding into one is the check of a body.

`reader` decodes with them and `openapi` publishes their schema, so that a body is described by what
it is checked with. They know the current version of each metric and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Union

import msgspec

from hubbub.protocol.metrics import Metric

BATCH_ID = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9a-f]{32}\Z",
        description="16 random bytes; the same in every attempt.",
    ),
]
_BASE64 = "[A-Za-z0-9+/]"
_BASE64_ENDS = {0: "", 1: f"{_BASE64}[AQgw]==", 2: f"{_BASE64}{{2}}[AEIMQUYcgkosw048]="}


def base64_bits(width: int) -> Any:
    """Return the type of the bits of a report: so many bytes, which are Base64 in JSON."""
    whole, rest = divmod(width, 3)
    return Annotated[
        bytes,
        msgspec.Meta(
            min_length=width,
            max_length=width,
            description=f"{width} bytes; bit j is bit j % 8 of byte j // 8.",
            # The lengths alone would allow other characters, and one or two bytes more or less.
            extra_json_schema={"pattern": f"^{_BASE64}{{{4 * whole}}}{_BASE64_ENDS[rest]}$"},
        ),
    ]


def report_structs(
    metrics: Iterable[Metric], bits: Callable[[int], Any] = base64_bits, name: str = "Report"
) -> dict[type[msgspec.Struct], Metric]:
    """Make a struct for the reports of each metric's current version.

    Parameters
    ----------
    metrics : iterable of Metric
    bits : callable
        Returns the type of the bits, given the number of their bytes.
    name : str
        With the metric's name, the name of the struct.
    """
    metrics = list(metrics)
    structs = {}
    for metric in metrics:
        fields = [
            (
                "version",
                Annotated[
                    Literal[metric.version],
                    msgspec.Meta(
                        description="Or an earlier version, with that version's cohorts and bits."
                    ),
                ],
            ),
            ("cohort", Annotated[int, msgspec.Meta(ge=0, lt=metric.params.m)]),
            ("bits", bits(metric.params.k // 8)),
        ]
        tag: dict[str, Any] = {"tag_field": "metric", "tag": metric.name}
        if len(metrics) == 1:
            # The tag of a union with one member may be missing from a body; a field may not.
            fields.insert(0, ("metric", Literal[metric.name]))
            tag = {}
        struct = msgspec.defstruct(
            f"{name}.{metric.name}",
            fields,
            namespace={"__doc__": metric.description},
            forbid_unknown_fields=True,
            gc=False,
            **tag,
        )
        structs[struct] = metric
    return structs


def batch_struct(
    reports: Iterable[type[msgspec.Struct]], max_reports: int, name: str = "Batch"
) -> type[msgspec.Struct]:
    """Make a struct for batches of 1 to `max_reports` reports, each in one of some structs."""
    report: Any = Union[tuple(reports)]  # noqa: UP007 - made at run time
    some = Annotated[list[report], msgspec.Meta(min_length=1, max_length=max_reports)]
    fields = [("batch_id", BATCH_ID), ("reports", some)]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)
