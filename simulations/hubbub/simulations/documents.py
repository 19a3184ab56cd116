"""Results as JSON files: the same result makes the same bytes, and what is not a number is null."""

from __future__ import annotations

import json
import math
from pathlib import Path


def write_document(path: Path, document: object) -> None:
    """Write dicts, lists, strings and numbers as UTF-8 JSON; nan and infinity become null."""
    text = json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
