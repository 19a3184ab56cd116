"""What follows from the inputs of each test vector of docs/protocol, one function per file.

It shares no code with the client. Files of which nothing follows but refusal, or what stands beside
each row (`compact_refused`, `refused_registries`, `switch`), are only kept.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.reference import compact, protocol, responses, schedule
from evaluation.reference.account import Account
from evaluation.reference.protocol import Domain, Noise, Stream

FOLDER = Path(__file__).parents[3] / "docs" / "protocol" / "vectors"

Row = dict[str, Any]


def read(name: str) -> list[Row]:
    """Return the rows of a file."""
    return list(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def nine(number: float) -> float | None:
    """Return nine significant digits; None for infinity."""
    return None if math.isinf(number) else float(f"{number:.9g}")


def _client(row: Row) -> tuple[bytes, Domain]:
    names = (row["application"], row["metric"], row["version"])
    return bytes.fromhex(row["secret"]), Domain(*names)


def _noise(entry: Row) -> dict[str, float]:
    return {name: entry[name] for name in ("f", "f0", "f1", "p", "q") if name in entry}


def _epsilons(kind: str, h: int, entry: Row) -> Row:
    permanent, report = protocol.epsilons(kind, h, **_noise(entry))
    return {"epsilon_permanent": nine(permanent), "epsilon_report": nine(report)}


def _responded(row: Row, cohort: int, positions: list[int], k: int, f0: float, f1: float) -> Row:
    bits = protocol.bits_to_bytes(positions, k)
    permanent = protocol.permanent(*_client(row), cohort, bits, f0, f1)
    return {"cohort": cohort, "bits": bits.hex(), "permanent": permanent.hex()}


def bloom(row: Row) -> Row:
    positions = protocol.bloom_positions(row["value"], row["cohort"], row["k"], row["h"])
    return {"positions": positions, "bits": protocol.bits_to_bytes(positions, row["k"]).hex()}


def types(row: Row) -> Row:
    entry, value = row["entry"], row["value"]
    if entry["type"] == "boolean":
        size, positions = 1, [0] if value else []
    else:
        size, positions = protocol.field_size(entry) or 0, [protocol.field_number(entry, value)]
    k = -(-size // 8) * 8
    bits = protocol.bits_to_bytes(positions, k)
    return {"k": k, "bits": bits.hex(), **_epsilons(entry["type"], 1, entry)}


def open_strings(row: Row) -> Row:
    entry = row["entry"]
    steps, k, m = entry["steps"], entry["k"], entry["m"]
    cohort = protocol.cohort(*_client(row), (len(steps) + 1) * m)
    step = cohort // m
    hashed = protocol.open_string_bytes(row["value"], step, steps)
    number = protocol.open_string_cohort(cohort - step * m, step, steps, m)
    positions = protocol.hashed_positions(hashed, number, k, 1)
    drawn = _responded(row, cohort, positions, k, entry["f"] / 2, entry["f"] / 2)
    return {"hashed": hashed.hex(), **drawn, **_epsilons("open-string", 1, entry)}


def joint(row: Row) -> Row:
    entry, value = row["entry"], row["value"]
    is_hashed, k, h, m = protocol.joint_shape(entry)
    cohort = protocol.cohort(*_client(row), m)
    data = protocol.joint_bytes(entry["fields"], value)
    if is_hashed:
        positions = protocol.hashed_positions(data, cohort, k, h)
    else:
        positions = [protocol.joint_cell(entry["fields"], value)]
    drawn = _responded(row, cohort, positions, k, entry["f"] / 2, entry["f"] / 2)
    hashed = data.hex() if is_hashed else None
    return {"k": k, "h": h, "m": m, "hashed": hashed, **drawn, **_epsilons("joint", h, entry)}


def bernoulli(row: Row) -> Row:
    k, selector = row["k"], bytes.fromhex(row["selector"])
    stream = protocol.shake(bytes.fromhex(row["stream_message"]), 1100 * k // 8)
    lanes = [row["high"] if selector[j // 8] >> j % 8 & 1 else row["low"] for j in range(k)]
    return {"bits": protocol.bernoulli(lanes, stream).hex()}


def cohort(row: Row) -> Row:
    message = protocol.keyed_message("hubbub/1/cohort", *_client(row))
    return {"message": message.hex(), "cohort": protocol.cohort(*_client(row), row["m"])}


def permanent(row: Row) -> Row:
    in_cohort = protocol.cohort(*_client(row), row["m"])
    positions = protocol.bloom_positions(row["value"], in_cohort, row["k"], row["h"])
    half = row.get("f", 0.0) / 2
    return _responded(row, in_cohort, positions, row["k"], row.get("f0", half), row.get("f1", half))


def prices(row: Row) -> Row:
    """Return what so many reports of one permanent response reveal, and all of them."""
    kind, h = row["type"], row["h"]
    chances = Noise(*protocol.noise(row))
    permanent, _ = protocol.epsilons(kind, h, **_noise(row))
    some = protocol.epsilon_after(kind, h, chances, row["reports"])
    return {"epsilon": nine(some), "epsilon_permanent": nine(permanent)}


def whole_reports(row: Row) -> Row:
    entry = row["entry"]
    k = -(-responses.shape(entry)[0] // 8) * 8
    chances = protocol.noise(entry)
    cells = responses.draw(entry, row["own"], Stream(bytes.fromhex(row["stream_message"])))
    return {
        "k": k,
        "m": 2 if entry.get("variance") else 1,
        "p": nine(chances.p),
        "q": nine(chances.q),
        "epsilon": nine(responses.epsilon(entry)),
        "bits": protocol.bits_to_bytes(cells, k).hex(),
    }


class _Given(Stream):
    """A stream of given bytes."""

    def __init__(self, data: bytes) -> None:
        self._output = data
        self._read = 0


def numbers(row: Row) -> Row:
    coins = _Given(bytes.fromhex(row["coins"]))
    return {"position": responses.position(row["entry"], row["value"], row["cohort"], coins)}


def wire(row: Row) -> Row:
    reports = [
        report | {"bits": base64.b64encode(bytes.fromhex(report["bits"])).decode()}
        for report in row["reports"]
    ]
    body = {"batch_id": row["batch_id"], "reports": reports}
    return {"json": json.dumps(body, separators=(",", ":"))}


def compact_bodies(row: Row) -> Row:
    reports = [compact.Report(**r | {"bits": bytes.fromhex(r["bits"])}) for r in row["reports"]]
    body, order = compact.encode(row["batch_id"], reports)
    return {"order": order, "body": body.hex()}


def account(row: Row) -> Row:
    """Return what becomes of recordings, under one registry or several that follow one another."""
    steps = row.get("steps", [row])
    client = Account(steps[0]["registry"], bytes.fromhex(row.get("secret", "")))
    played = []
    for step in steps:
        client.registry = step["registry"]
        recordings = []
        for recording in step["recordings"]:
            given = {name: recording[name] for name in ("time", "metric", "value")}
            result, answer = client.record(**given)
            recordings.append(given | {"result": result, "answer": answer})
        played.append({"registry": step["registry"], "recordings": recordings})
    outcome = {"steps": played} if "steps" in row else {"recordings": played[0]["recordings"]}
    return outcome | {"committed": nine(client.committed), "spent": nine(client.spent)}


def first_days(row: Row) -> Row:
    client = (bytes.fromhex(row["secret"]), row["application"], row["name"])
    return {
        "message": schedule.day_message(*client, row["period"]).hex(),
        "first_day": schedule.first_day(*client, row["period_days"], row["period"]),
    }


def choices(row: Row) -> Row:
    client = (bytes.fromhex(row["secret"]), row["application"], row["group"])
    return {"chosen": schedule.choice(*client, row, row["period"])}


def slices(row: Row) -> Row:
    """Return what an app says of itself in each metric's reports (section 11)."""
    dimensions, values = row["registry"]["dimensions"], row["values"]

    def is_told(name: str) -> bool:
        dimension, value = dimensions[name], values[name]
        if isinstance(dimension, list):
            return value in dimension
        is_value = value != "other" and re.fullmatch(r"[A-Za-z0-9._-]{1,32}", value)
        return bool(is_value and re.fullmatch(dimension["pattern"], value))

    return {
        "slices": {
            metric: ",".join(
                f"{name}={values[name]}"
                for name in entry.get("dimensions", [])
                if name in values and is_told(name)
            )
            for metric, entry in row["registry"]["metrics"].items()
        },
        "mistyped": not all(value == "other" or is_told(name) for name, value in values.items()),
    }


def samples(row: Row) -> Row:
    """Return a client's number for a metric, an integer below 2**53 (section 12)."""
    names = (row["application"].encode(), row["metric"].encode())
    moment = () if row["period"] is None else (schedule.eight_bytes(row["period"]),)
    data = protocol.message(b"hubbub/1/sample", bytes.fromhex(row["secret"]), *names, *moment)
    return {"number": int.from_bytes(protocol.shake(data, 7), "little") // 8}


OUTPUTS: dict[str, Callable[[Row], Row]] = {
    "account": account, "asymmetric": permanent, "bernoulli": bernoulli, "bloom": bloom,
    "choices": choices, "cohort": cohort, "compact": compact_bodies, "first_days": first_days,
    "joint": joint, "numbers": numbers, "once": account, "open_strings": open_strings,
    "permanent": permanent, "prices": prices, "samples": samples, "slices": slices, "types": types,
    "updates": account, "whole_reports": whole_reports, "wire": wire,
}  # fmt: skip
