"""Numbers as people read them, and out of reports."""

from __future__ import annotations

from tuner.request.target_text import is_emulated

MODELLED = "modelled times of an emulated device: none was timed"
"""What times of the emulated device are, wherever they are shown."""


def latency(seconds: float | None) -> str:
    """Seconds for people, three significant digits; a dash where unknown."""
    if seconds is None:
        return "-"
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds * 1e9)} ns"


def ratio(value: float | None) -> str:
    """A speed-up for people; a dash where unknown."""
    return "-" if value is None else f"{three_digits(value)}x"


def three_digits(value: float) -> str:
    """A number above zero with three significant digits, or all of those before its point."""
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


def plural(noun: str, count: int) -> str:
    """A noun that takes an s, for so many."""
    return noun if count == 1 else f"{noun}s"


def amount(count: int, noun: str) -> str:
    """A number of things: `1 trial`, `2 trials`."""
    return f"{count} {plural(noun, count)}"


def all_of(count: int, noun: str) -> str:
    """All of them: `the only trial`, `all 2 trials`."""
    return f"the only {noun}" if count == 1 else f"all {amount(count, noun)}"


def note_modelled(target_json: str) -> str:
    """What is to be said of the times of a run for a target; empty where they were measured."""
    return MODELLED if is_emulated(target_json) else ""
