"""Results in every format, as the tests read them."""

import io
from collections.abc import Callable
from typing import BinaryIO

from rich.console import Console

from hubbub.decoder.formats.data_files import write_csv, write_json, write_parquet
from hubbub.decoder.formats.html_page import write_html
from hubbub.decoder.formats.terminal import show
from hubbub.decoder.results.result import Result


def csv_of(result: Result) -> str:
    return _written(write_csv, result).decode()


def json_of(result: Result) -> str:
    return _written(write_json, result).decode()


def html_of(result: Result) -> str:
    return _written(write_html, result).decode()


def parquet_of(result: Result) -> bytes:
    return _written(write_parquet, result)


def shown(result: Result, width: int = 200) -> str:
    """Return what a terminal of that width, without colours, would show."""
    text = io.StringIO()
    show(result.blocks(), Console(width=width, file=text, color_system=None))
    return text.getvalue()


def _written(write: Callable[[Result, BinaryIO], None], result: Result) -> bytes:
    file = io.BytesIO()
    write(result, file)
    return file.getvalue()
