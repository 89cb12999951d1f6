"""Records as lines of strict JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from tuner.record import Record


def record_line(record: Record) -> str:
    """One record as one line of strict JSON: NaN and infinities become strings."""
    return json.dumps(strict(record.to_json()), allow_nan=False)


def strict(value: Any) -> Any:
    """Plain data with NaN and the infinities as strings, which strict JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: strict(inner) for key, inner in value.items()}
        case list():
            return [strict(inner) for inner in value]
        case _:
            return value
