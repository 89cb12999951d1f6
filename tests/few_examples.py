"""How many examples a property test takes whose examples are compiled."""

from __future__ import annotations

from hypothesis import settings

_PART, _LEAST = 4, 3


def examples(number: int) -> int:
    """All of them in `make fuzz`, else a quarter, yet at least three."""
    if settings.get_current_profile_name() == "fuzz":
        return number
    return min(number, max(_LEAST, number // _PART))
