"""The files that the cases start from: reports of known values, drawn from the protocol's text.

Nothing of the product makes them but the one command that fills the store, so that a change of the
product changes no input. What is here is the same in every run: seeds and days are fixed.
"""

import csv
import datetime as dt
import gzip
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from evaluation.reference import protocol
from rappor_clients import Params, map_row, run_clients, sum_bits, write_files

FIRST_DAY = dt.date(2024, 11, 1)
"""Long ago, so that no machine's clock takes it for the future."""
PAGES = ("news.example", "mail.example", "日本語.example", "=cmd|formula", "rare.example")
BEFORE, AFTER = (600, 300, 150, 100, 50), (300, 300, 150, 400, 50)
FEW = (60, 30, 15, 10, 5)
DAYS = (BEFORE, BEFORE, FEW, BEFORE, AFTER, AFTER)
ABSENT = tuple(f"nowhere {number}" for number in range(15))
HELD: dict[str, tuple[tuple[Any, int], ...]] = {
    "theme": (("light", 900), ("dark", 600)),
    "private": ((True, 900), (False, 2100)),
    "tabs": ((0, 300), (3, 1500), (7.5, 900), (1e9, 300)),
    "words": (("maria", 1400), ("mario", 900), ("zoe", 700)),
    "crashes": (
        ({"ended": "normally", "slow": False}, 1600),
        ({"ended": "out of memory", "slow": True}, 1000),
        ({"ended": "hang", "slow": True}, 400),
    ),
    "sites": (
        ({"site": "a.example", "secure": True}, 1500),
        ({"site": "b.example", "secure": False}, 1000),
        ({"site": "c.example", "secure": True}, 500),
    ),
}
"""Each metric's values, and how many clients report them on a day."""
THEMES_LATER = (("light", 600), ("dark", 600), ("system", 300))
RAPPOR = Params(k=16, h=2, m=4, p=0.25, q=0.75, f=0.25)
IMPORTED = Params(k=32, h=2, m=8, p=0.1, q=0.9, f=0.1)  # homepage's
RAPPOR_HELD = {"007": 1500, "NA": 900, 'say "no", twice': 600}

_STATIC = Path(__file__).parent / "inputs"
_Bits = NDArray[np.bool_]


def write_inputs(folder: Path) -> None:
    """Write everything but the store into a folder."""
    shutil.copytree(_STATIC, folder, dirs_exist_ok=True)
    registry = tomllib.loads((folder / "metrics.toml").read_text(encoding="utf-8"))["metrics"]
    for seed, (name, held) in enumerate(HELD.items()):
        _write_reports(folder / f"{name}.parquet", registry[name], held, seed)
    for number, clients in enumerate(DAYS):
        day = FIRST_DAY + dt.timedelta(days=number)
        held = tuple(zip(PAGES, clients, strict=True))
        _write_reports(folder / f"homepage-{day}.parquet", registry["homepage"], held, number)
    _write_reports(folder / "theme-2.parquet", registry["theme"], THEMES_LATER, 99)
    _write_cells(folder)
    _write_lists(folder)
    _write_rappor(folder / "rappor")
    _write_people(folder / "people.parquet")


def import_commands() -> list[str]:
    """Return the commands that fill `hubbub.db` with homepage's days, and theme's."""
    into = "hubbub-collector import --metrics metrics.toml --store sqlite:///hubbub.db"
    days = [FIRST_DAY + dt.timedelta(days=number) for number in range(len(DAYS))]
    return [
        *(f"{into} --metric homepage --day {day} homepage-{day}.parquet" for day in days),
        f"{into} --metric theme --day {days[0]} theme.parquet",
        f"{into} --metric theme --day {days[1]} theme-2.parquet",
    ]


def _write_reports(
    path: Path, entry: dict[str, Any], held: tuple[tuple[Any, int], ...], seed: int
) -> None:
    """Write a report of each client with the published probabilities."""
    rng = np.random.default_rng(seed)
    k, m = _shape(entry)
    n = sum(clients for _, clients in held)
    values = rng.permutation(np.repeat(np.arange(len(held)), [clients for _, clients in held]))
    cohorts = rng.integers(m, size=n)
    true: _Bits = np.zeros((len(held), m, k), dtype=np.bool_)
    for index, (value, _) in enumerate(held):
        for cohort in range(m):
            true[index, cohort, _positions(entry, value, cohort)] = True
    f, p, q = entry["f"], entry.get("p", 0.0), entry.get("q", 1.0)
    low, high = (f * (p + q) / 2 + (1 - f) * chance for chance in (p, q))
    bits = rng.random((n, k)) < np.where(true[values, cohorts], high, low)
    _write_bits(path, cohorts, bits)


def _write_cells(folder: Path) -> None:
    """Write reports of sets of two of six categories, and of cells of numbers on three days."""
    rng = np.random.default_rng(100)
    own = rng.permutation(np.repeat(np.arange(6), (900, 1200, 500, 300, 100, 0)))
    order = rng.random((len(own), 6)).argsort(axis=1)
    others = order[order != own[:, None]].reshape(-1, 5)
    first = np.where(rng.random(len(own)) < 0.8, own, others[:, 1])
    bits = np.zeros((len(own), 8), dtype=np.bool_)
    bits[np.arange(len(own)), first] = bits[np.arange(len(own)), others[:, 0]] = True
    _write_bits(folder / "language.parquet", np.zeros(len(own), dtype=np.int64), bits)
    for day, mean in enumerate((20.0, 20.0, 35.0)):
        cohorts = rng.integers(2, size=4_000)
        units = np.clip(rng.normal(mean, 12.0, size=4_000), 0, 60) / 60
        place = 5 * np.where(cohorts == 1, units**2, units)
        start = np.minimum(place.astype(np.int64), 4)
        start += rng.random(4_000) < place - start
        inside, outside = start + rng.integers(3, size=4_000), rng.integers(5, size=4_000)
        outside += 3 * (outside >= start)
        cells = np.where(rng.random(4_000) < 0.8, inside, outside)
        path = folder / f"minutes-{FIRST_DAY + dt.timedelta(days=day)}.parquet"
        _write_bits(path, cohorts, np.arange(8) == cells[:, None])


def _write_bits(path: Path, cohorts: NDArray[np.int64], bits: _Bits) -> None:
    packed = np.packbits(bits, axis=1, bitorder="little")
    columns = {"cohort": cohorts.astype(np.uint16), "bits": [row.tobytes() for row in packed]}
    parquet.write_table(pa.table(columns), path)


def _shape(entry: dict[str, Any]) -> tuple[int, int]:
    if entry["type"] == "joint":
        _, k, _, m = protocol.joint_shape(entry)
        return k, m
    if entry["type"] == "open-string":
        return entry["k"], entry["m"] * (len(entry["steps"]) + 1)
    return entry.get("k", 8), entry.get("m", 1)


def _positions(entry: dict[str, Any], value: Any, cohort: int) -> list[int]:
    """Return which bits a value sets in a cohort."""
    if entry["type"] == "string":
        return protocol.bloom_positions(value, cohort, entry["k"], entry["h"])
    if entry["type"] == "open-string":
        steps, m = entry["steps"], entry["m"]
        step, in_step = divmod(cohort, m)
        data = protocol.open_string_bytes(value, step, steps)
        number = protocol.open_string_cohort(in_step, step, steps, m)
        return protocol.hashed_positions(data, number, entry["k"], 1)
    if entry["type"] == "joint":
        hashed, k, h, _ = protocol.joint_shape(entry)
        if not hashed:
            return [protocol.joint_cell(entry["fields"], value)]
        data = protocol.joint_bytes(entry["fields"], value)
        return protocol.hashed_positions(data, cohort, k, h)
    if entry["type"] == "boolean":
        return [0] if value else []
    return [protocol.field_number(entry, value)]


def _write_lists(folder: Path) -> None:
    """Write the candidates as one file, and a long list as a compressed one."""
    (folder / "names.txt").write_text("\n".join([*PAGES, *ABSENT, ""]), encoding="utf-8")
    (folder / "sites.txt").write_text("a.example\nb.example\nd.example\n", encoding="utf-8")
    (folder / "latin1.txt").write_bytes("München\n".encode("latin-1"))
    long = [*PAGES, *(f"made up {number}" for number in range(3000))]
    # `gzip.compress` gives other bytes from Python 3.13 on, and results hold their hash.
    with (
        (folder / "long.txt.gz").open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed,
    ):
        compressed.write("\n".join(long).encode())


def _write_rappor(folder: Path) -> None:
    """Write google/rappor's three files, and single reports of a metric of the registry."""
    folder.mkdir()
    words = [*RAPPOR_HELD, *ABSENT]
    counts = sum_bits(run_clients(RAPPOR, RAPPOR_HELD), RAPPOR)
    write_files(folder, RAPPOR, counts, (map_row(word, RAPPOR) for word in words))
    _write_csv(folder / "homepage_map.csv", [map_row(word, IMPORTED) for word in words])
    cohorts, sent = zip(*run_clients(IMPORTED, _scaled(RAPPOR_HELD, 0.5), seed=2), strict=True)
    bits = [int(text, 2).to_bytes(IMPORTED.k // 8, "little") for text in sent]
    table = {"cohort": pa.array(cohorts, pa.uint16()), "bits": pa.array(bits)}
    parquet.write_table(pa.table(table), folder / "reports.parquet")


def _write_people(path: Path) -> None:
    """Write a table in the clear, of one row per user."""
    n = 400
    table = {
        "user": [f"u{i}" for i in range(n)],
        "age": [20 + i % 41 for i in range(n)],
        "city": ["RRRROOOB"[i % 8] for i in range(n)],
        "home": ["search.example"] * 250 + ["news.example"] * 149 + ["only.example"],
    }
    parquet.write_table(pa.table(table), path)


def _scaled(held: Mapping[str, int], by: float) -> dict[str, int]:
    return {word: round(by * clients) for word, clients in held.items()}


def _write_csv(path: Path, rows: list[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
