"""Results in every format, as the tests read them."""

import io
from collections.abc import Callable
from typing import BinaryIO

from rich.console import Console

from hubbub.reporting import Estimates, show, write_csv, write_html, write_json, write_parquet


def csv_of(result: Estimates) -> str:
    return _written(write_csv, result).decode()


def json_of(result: Estimates) -> str:
    return _written(write_json, result).decode()


def html_of(result: Estimates) -> str:
    return _written(write_html, result).decode()


def parquet_of(result: Estimates) -> bytes:
    return _written(write_parquet, result)


def shown(result: Estimates, width: int = 200) -> str:
    text = io.StringIO()
    show(result.view, Console(width=width, file=text, color_system=None))
    return text.getvalue()


def _written(write: Callable[[Estimates, BinaryIO], None], result: Estimates) -> bytes:
    file = io.BytesIO()
    write(result, file)
    return file.getvalue()
