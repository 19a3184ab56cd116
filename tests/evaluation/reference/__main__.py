"""Write the test vectors of docs/protocol: python -m evaluation.reference FOLDER."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

from evaluation.reference import compact as compact_form
from evaluation.reference import histories, protocol
from evaluation.reference.account import Account
from evaluation.reference.compact import Report
from evaluation.reference.protocol import Domain
from evaluation.reference.refused import refused_registries
from evaluation.reference.response_vectors import asymmetric, numbers, prices, whole_reports
from evaluation.reference.schedule_vectors import choices, first_days, once
from evaluation.reference.slices import longest_slice, slices
from evaluation.reference.switch import samples, switch

VALUES = (
    "",
    "a",
    "example.com",
    "https://www.example.com/?q=1",
    "Zürich",
    "Zu\u0308rich",
    "\ufb01ve",
    "日本語",
    "😀",
    "\u0000",
    " 007",
    "NA",
    "fifteen bytes..",
    "sixteen bytes...",
    "seventeen bytes..",
    "a longer text, so that several blocks of sixteen bytes go through the hash: 0123456789",
)
SHAPES = ((8, 1, 1), (8, 2, 4), (128, 2, 64), (1024, 8, 1024))
CHANCES = (
    (0.25, 0.75),
    (0.5, 0.5),
    (0.1234, 0.8765),
    (0.0, 1.0),
    (1.0, 0.3),
    (5e-324, 1 - 2**-53),
    (0.1, 0.5),
)
TYPES: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
    ({"type": "boolean"}, (True, False)),
    ({"type": "enum", "categories": ["light", "dark", "Zürich"]}, ("light", "Zu\u0308rich")),
    ({"type": "enum", "categories": [f"c{i}" for i in range(17)]}, ("c0", "c7", "c8", "c16")),
    (
        {"type": "ordinal", "edges": [0, 1.5, 10, 1e6]},
        (-1e300, -0.0, 0, 1, 1.5, 9.999999999, 10, 1e6, 1e300),
    ),
    ({"type": "ordinal", "edges": [5]}, (4, 5)),
    (
        {"type": "enum", "categories": ["light", "Zürich"], "other": True},
        ("light", "Zu\u0308rich", "dark", "other", ""),
    ),
)
NOISES = (
    {"f": 0.5, "p": 0.25, "q": 0.75},
    {"f": 0.3141, "p": 0.1234, "q": 0.8765},
    {"f": 0.0, "p": 0.75, "q": 0.5},
    {"f": 0.25, "p": 0.0, "q": 1.0},
)
OPEN_STRINGS: tuple[dict[str, Any], ...] = (
    {"type": "open-string", "steps": [4, 7], "k": 128, "m": 64},
    {"type": "open-string", "steps": [1], "k": 8, "h": 1, "m": 1},
    {"type": "open-string", "steps": [1, 2, 3, 5, 8, 13, 32, 64], "k": 64, "m": 7281},
)
PREFIXED = (
    "",
    "a",
    "exam",
    "example",
    "exampl",
    "example.com",
    "example.org",
    "Zürich",
    "Zu\u0308rich",
    "Zürichsee",
    "e\u0301te\u0301",
    "日本語",
    "😀😀",
    "\u0000",
    "a\u0000bc\u0000defgh",
    " 007 ",
    "\u00ff",
    "a longer text, so that every step cuts it: 0123456789 and so on, to its end",
)
CRASH = {"name": "crash", "type": "enum", "categories": ["none", "oom"], "other": True}
THEME = {"name": "theme", "type": "enum", "categories": ["light", "dark", "Zürich"]}
SLOW = {"name": "slow", "type": "boolean"}
TABS = {"name": "tabs", "type": "ordinal", "edges": [1, 10.5, 100]}
DRIVER = {"name": "driver", "type": "string"}
PAGE = {"name": "page-1", "type": "string"}
OF_FIELDS: dict[str, tuple[Any, ...]] = {
    "crash": ("none", "oom", "hang", "other"),
    "theme": ("light", "Zu\u0308rich"),
    "slow": (False, True),
    "tabs": (0, 10.5, 1e6),
    "driver": ("", "nvidia 535", "e\u0301te\u0301", "\u00ff", "1"),
    "page-1": ("", "日本語", "0"),
}
JOINT: tuple[dict[str, Any], ...] = (
    {"type": "joint", "fields": [CRASH, SLOW]},
    {"type": "joint", "fields": [TABS, THEME, CRASH]},
    {"type": "joint", "fields": [SLOW, TABS], "k": 4096, "h": 1, "m": 1},
    {"type": "joint", "fields": [TABS, THEME, CRASH], "k": 32, "m": 16},
    {"type": "joint", "fields": [CRASH, DRIVER], "k": 128, "h": 2, "m": 64},
    {"type": "joint", "fields": [DRIVER, SLOW, PAGE], "k": 64, "h": 1, "m": 1024},
)
DOMAINS = (
    Domain("com.example.browser", "homepage", 1),
    Domain("com.example.browser", "homepage", 2),
    Domain("com.example.browser", "search", 1),
    Domain("com.example.browserh", "omepage", 1),
)
BATCHES: dict[str, tuple[Report, ...]] = {
    "one report": (Report("homepage", 1, 17, protocol.shake(b"wire", 16)),),
    "records ascend as bytes, the cohort's lower byte first": tuple(
        Report("homepage", 1, cohort, bytes([byte]))
        for cohort, byte in ((1, 9), (256, 0), (0, 255), (65534, 1), (1, 8), (0, 255), (255, 128))
    ),
    "sections ascend by name, then by version as a number": tuple(
        Report(name, version, 0, protocol.shake(f"{name} {version}".encode(), 2))
        for name in ("b", "ab", "a", "a1", "a_b", "a-b")
        for version in (256, 2, 2**31 - 1)
    ),
    "narrow and wide, of several metrics": tuple(
        Report(name, 1, i, protocol.shake(f"{name} {i}".encode(), width))
        for i in range(5)
        for name, width in (("wide", 512), ("n" * 64, 1), ("homepage", 16))
    ),
    "sections ascend by name and slice, joined": tuple(
        Report(name, version, i, protocol.shake(f"{name} {i}".encode(), 2), slice_)
        for name in ("a", "a-b", "a1", "a_b", "ab")
        for version in (2, 1)
        for i, slice_ in enumerate(
            ("", "platform=mac", "platform=mac,release=1.2", "platform=linux", "release=1.10")
        )
    ),
    "the longest name and the longest slice": (
        Report(
            "n" * 64,
            1,
            1,
            b"\x01",
            longest_slice(dict.fromkeys(("dim1", "dim2", "dim3", "dim4", "fifth"))),
        ),
    ),
}
SECRETS = tuple(hashlib.sha256(f"vector {i}".encode()).digest() for i in range(3))


def bloom() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for value in VALUES:
        for k, h, m in SHAPES:
            for cohort in sorted({0, m // 2, m - 1}):
                positions = protocol.bloom_positions(value, cohort, k, h)
                rows.append(
                    {
                        "value": value,
                        "k": k,
                        "h": h,
                        "cohort": cohort,
                        "positions": positions,
                        "bits": protocol.bits_to_bytes(positions, k).hex(),
                    }
                )
    return rows


def types() -> list[dict[str, object]]:
    """Give the entries as they stand in metrics.toml, a value, its bits and both epsilons."""
    rows: list[dict[str, object]] = []
    for noise in NOISES:
        for entry, values in TYPES:
            kind, k = str(entry["type"]), width(entry)
            permanent, report = protocol.epsilons(kind, 1, **noise)
            for value in values:
                positions = set_positions(entry, value)
                rows.append(
                    {
                        "entry": entry | noise,
                        "value": value,
                        "k": k,
                        "bits": protocol.bits_to_bytes(positions, k).hex(),
                        "epsilon_permanent": finite(permanent),
                        "epsilon_report": finite(report),
                    }
                )
    return rows


def open_strings() -> list[dict[str, object]]:
    """Give a client of each step, and what it makes of values up to the permanent response."""
    rows: list[dict[str, object]] = []
    for entry, noise, domain in zip(OPEN_STRINGS, NOISES, DOMAINS, strict=False):
        steps, k, m = entry["steps"], entry["k"], entry["m"]
        f = 0.5 if noise["f"] == 0 else noise["f"]
        chances = {"f": f, "p": noise["p"], "q": noise["q"]}
        permanent, report = protocol.epsilons("open-string", 1, **chances)
        for step in range(len(steps) + 1):
            secret, in_cohort = client_at(step, domain, len(steps) + 1, m)
            for value in PREFIXED:
                hashed = protocol.open_string_bytes(value, step, steps)
                number = protocol.open_string_cohort(in_cohort - step * m, step, steps, m)
                positions = protocol.hashed_positions(hashed, number, k, 1)
                bits = protocol.bits_to_bytes(positions, k)
                response = protocol.permanent(secret, domain, in_cohort, bits, f / 2, f / 2)
                rows.append(
                    {
                        "entry": entry | chances,
                        "secret": secret.hex(),
                        **domain._asdict(),
                        "value": value,
                        "cohort": in_cohort,
                        "hashed": hashed.hex(),
                        "bits": bits.hex(),
                        "permanent": response.hex(),
                        "epsilon_permanent": finite(permanent),
                        "epsilon_report": finite(report),
                    }
                )
    return rows


def joint() -> list[dict[str, object]]:
    """Give all tuples of a few values a field, and what clients make of them."""
    rows: list[dict[str, object]] = []
    for number, entry in enumerate(JOINT):
        fields, noise = entry["fields"], NOISES[number % 2]
        domain, secret = DOMAINS[number % len(DOMAINS)], SECRETS[number % len(SECRETS)]
        hashed, k, h, m = protocol.joint_shape(entry)
        permanent, report = protocol.epsilons("joint", h, **noise)
        in_cohort = protocol.cohort(secret, domain, m)
        names = [field["name"] for field in fields]
        for parts in itertools.product(*(OF_FIELDS[name] for name in names)):
            value = dict(zip(names, parts, strict=True))
            data = protocol.joint_bytes(fields, value)
            if hashed:
                positions = protocol.hashed_positions(data, in_cohort, k, h)
            else:
                positions = [protocol.joint_cell(fields, value)]
            bits = protocol.bits_to_bytes(positions, k)
            response = protocol.permanent(secret, domain, in_cohort, bits, *[noise["f"] / 2] * 2)
            rows.append(
                {
                    "entry": entry | noise,
                    "secret": secret.hex(),
                    **domain._asdict(),
                    "value": value,
                    "k": k,
                    "h": h,
                    "m": m,
                    "cohort": in_cohort,
                    "hashed": data.hex() if hashed else None,
                    "bits": bits.hex(),
                    "permanent": response.hex(),
                    "epsilon_permanent": finite(permanent),
                    "epsilon_report": finite(report),
                }
            )
    return rows


def client_at(step: int, domain: Domain, steps: int, m: int) -> tuple[bytes, int]:
    """Return the first numbered client whose cohort is of a step: its secret and the cohort."""
    secrets = (hashlib.sha256(f"client {i}".encode()).digest() for i in itertools.count())
    clients = ((secret, protocol.cohort(secret, domain, steps * m)) for secret in secrets)
    return next((secret, drawn) for secret, drawn in clients if drawn // m == step)


def width(entry: dict[str, Any]) -> int:
    bits = 1 if entry["type"] == "boolean" else protocol.field_size(entry) or 0
    return -(-bits // 8) * 8


def set_positions(entry: dict[str, Any], value: Any) -> list[int]:
    if entry["type"] == "boolean":
        return [0] if value else []
    return [protocol.field_number(entry, value)]


def finite(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else float(f"{epsilon:.9g}")


def bernoulli() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for k in (8, 128, 1024):
        selector = protocol.shake(b"selector", k // 8)
        for low, high in CHANCES:
            stream = protocol.shake(b"coins", 1100 * k // 8)
            lanes = [high if selector[j // 8] >> j % 8 & 1 else low for j in range(k)]
            rows.append(
                {
                    "k": k,
                    "low": low,
                    "high": high,
                    "selector": selector.hex(),
                    "stream_message": b"coins".hex(),
                    "bits": protocol.bernoulli(lanes, stream).hex(),
                }
            )
    return rows


def cohort() -> list[dict[str, object]]:
    return [
        {
            "secret": secret.hex(),
            **domain._asdict(),
            "m": m,
            "message": protocol.keyed_message("hubbub/1/cohort", secret, domain).hex(),
            "cohort": protocol.cohort(secret, domain, m),
        }
        for secret in SECRETS
        for domain in DOMAINS
        for m in (1, 2, 3, 64, 1000, 1024)
    ]


def permanent() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for secret in SECRETS:
        for domain in DOMAINS:
            for k, f in ((8, 0.5), (128, 0.5), (128, 0.3141), (128, 0.0), (1024, 0.999)):
                in_cohort = protocol.cohort(secret, domain, 64)
                positions = protocol.bloom_positions("example.com", in_cohort, k, 2)
                bits = protocol.bits_to_bytes(positions, k)
                rows.append(
                    {
                        "secret": secret.hex(),
                        **domain._asdict(),
                        "k": k,
                        "m": 64,
                        "f": f,
                        "value": "example.com",
                        "h": 2,
                        "cohort": in_cohort,
                        "bits": bits.hex(),
                        "permanent": protocol.permanent(
                            secret, domain, in_cohort, bits, f / 2, f / 2
                        ).hex(),
                    }
                )
    return rows


def wire() -> list[dict[str, object]]:
    bits = protocol.shake(b"wire", 16)
    report = {"metric": "homepage", "version": 1, "cohort": 17}
    as_text = base64.b64encode(bits).decode()
    batch_id = "00112233445566778899aabbccddeeff"
    rows: list[dict[str, object]] = []
    for told in ({}, {"slice": "platform=mac,release=1.2"}):
        named = {"metric": report["metric"]} | told | report  # in the order of the keys
        body = {"batch_id": batch_id, "reports": [named | {"bits": as_text}]}
        rows.append(
            {
                "batch_id": batch_id,
                "reports": [named | {"bits": bits.hex()}],
                "json": json.dumps(body, separators=(",", ":")),
            }
        )
    return rows


def compact() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, reports in BATCHES.items():
        batch_id = protocol.shake(name.encode(), 16).hex()
        body, order = compact_form.encode(batch_id, list(reports))
        rows.append(
            {
                "name": name,
                "batch_id": batch_id,
                "reports": [as_row(report) for report in reports],
                "order": order,
                "body": body.hex(),
            }
        )
    return rows


def as_row(report: Report) -> dict[str, object]:
    row = report._asdict() | {"bits": report.bits.hex()}
    return row if report.slice else {key: row[key] for key in row if key != "slice"}


def compact_refused() -> list[dict[str, object]]:
    """Give bodies that no encoder may write, and why."""
    one, two = (Report("homepage", 1, cohort, bytes([7, cohort])) for cohort in (3, 5))
    head = b"\x01" + bytes(range(16))
    first, second, third = (
        compact_form.encode("0" * 32, list(reports))[0][19:]
        for reports in ((one, two), (one._replace(version=2),), (one._replace(metric="search"),))
    )
    name, numbers = first[:9], first[9:17]
    records = first[17:]
    whole = head + b"\x01\x00" + first
    named = head + b"\x01\x00" + name + b"\x01\x00\x00\x00"
    bodies = {
        "empty": b"",
        "the format's number is 0": b"\x00" + whole[1:],
        "the format's number is 2": b"\x02" + whole[1:],
        "the batch id is cut off": whole[:12],
        "the number of sections is cut off": whole[:18],
        "no section": head + b"\x00\x00",
        "fewer sections than announced": head + b"\x02\x00" + first,
        "more sections than announced": head + b"\x01\x00" + first + second,
        "65,535 sections announced": head + b"\xff\xff" + first,
        "a name of no character": head + b"\x01\x00\x00" + numbers + records,
        "a name of 65 characters": head + b"\x01\x00\x41" + b"h" * 65 + numbers + records,
        "a name that isn't ASCII": whole.replace(b"home", b"h\xc3\xb6m"),
        "the name is cut off": whole[:24],
        "the version is cut off": whole[:30],
        "the number of bytes of bits is cut off": whole[:33],
        "the number of records is cut off": whole[:35],
        "no bits": named + b"\x00\x00\x02\x00\x03\x00\x05\x00",
        "513 bytes of bits": head
        + b"\x01\x00"
        + name
        + b"\x01\x00\x00\x00\x01\x02\x01\x00"
        + bytes(515),
        "no record": named + b"\x02\x00\x00\x00",
        "no record, before a section with one": head
        + b"\x02\x00"
        + named[19:]
        + b"\x02\x00\x00\x00"
        + third,
        "a record is missing": whole[:-4],
        "a record is cut off": whole[:-1],
        "65,535 records announced": whole.replace(b"\x02\x00\x02\x00", b"\x02\x00\xff\xff"),
        "one record more than announced": whole + records[4:],
        "a byte at the end": whole + b"\x00",
        "a name with an empty slice": whole.replace(b"\x08homepage", b"\x09homepage;"),
        "no name, but a slice": whole.replace(b"\x08homepage", b"\x02;a"),
        "the records descend": head + b"\x01\x00" + name + numbers + records[4:] + records[:4],
        "the same section twice": head + b"\x02\x00" + first + first,
        "the versions descend": head + b"\x02\x00" + second + first,
        "the names descend": head + b"\x02\x00" + third + first,
    }
    return [{"why": why, "body": body.hex()} for why, body in bodies.items()]


def account() -> list[dict[str, object]]:
    """Give recordings under one registry, and what becomes of each."""
    rows: list[dict[str, object]] = []
    for history in histories.HISTORIES:
        ((registry, _),) = history.steps
        (recordings,), end = histories.play(history)
        rows.append(
            {"name": history.name, "registry": registry, "recordings": recordings} | sums(end)
        )
    return rows


def updates() -> list[dict[str, object]]:
    """Give recordings under registries that follow one another, and what becomes of each."""
    rows: list[dict[str, object]] = []
    for history in histories.UPDATES:
        played, end = histories.play(history)
        steps = [
            {"registry": registry, "recordings": recordings}
            for (registry, _), recordings in zip(history.steps, played, strict=True)
        ]
        rows.append({"name": history.name, "steps": steps} | sums(end))
    return rows


def sums(account: Account) -> dict[str, object]:
    return {"committed": finite(account.committed), "spent": finite(account.spent)}


def main() -> None:
    folder = Path(sys.argv[1])
    for make in (
        bloom, types, open_strings, joint, bernoulli, cohort, permanent, wire, compact,
        compact_refused, account, updates, asymmetric, prices, whole_reports, numbers,
        first_days, choices, once, refused_registries, slices, switch, samples,
    ):  # fmt: skip
        lines = ",\n".join(json.dumps(row) for row in make())
        (folder / f"{make.__name__}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
