"""Templates and their knobs: what a space of hand-written schedules is made of.

A template is one way to write a program down, with a few integers left open. Its knobs are plain
integers, so thousands of settings can be checked against the limits of the hardware and ranked by
an analytic estimate before TVM sees one of them.

A candidate of such a space is a trace like any other: whoever reads it needs no template. The
knobs that made it are kept in the trace as an annotation that is taken away again at once, so
that equal programs stay equal.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, Protocol

Knobs = Mapping[str, int]

KNOBS_KEY = "tuner.knobs"


class Template(Protocol):
    """One shape of code for one task.

    Attributes:
        name: of the space it spans, kept with each candidate; it changes when `apply` does.
        choices: for each knob the values it may take, in an order in which neighbours are alike.
    """

    @property
    def name(self) -> str: ...

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]: ...

    def refusal(self, knobs: Knobs) -> str:
        """Why these knobs cannot work: a limit of the hardware or of the shape; empty if they can.

        Integers only, no lowering.
        """

    def cost_s(self, knobs: Knobs) -> float:
        """Analytic estimate of the latency in seconds; only its order matters."""

    def apply(self, schedule: Any, knobs: Knobs) -> None:
        """Carry the knobs out on a fresh schedule of the task's module.

        Raises:
            Exception: whatever TVM throws where a primitive does not apply.
        """


def draw(template: Template, rng: random.Random) -> dict[str, int]:
    """Each knob at random; feasible or not."""
    return {name: rng.choice(values) for name, values in template.choices.items()}


def nudge(template: Template, knobs: Knobs, rng: random.Random) -> dict[str, int]:
    """Some of the knobs changed: mostly one, mostly to a neighbouring value."""
    changed = dict(knobs)
    open_knobs = [name for name, values in template.choices.items() if len(values) > 1]
    for name in rng.sample(open_knobs, min(len(open_knobs), 1 + _geometric(rng))):
        values = template.choices[name]
        at = values.index(knobs[name]) if knobs.get(name) in values else None
        if at is None or rng.random() < _JUMP:
            changed[name] = rng.choice(values)
        else:
            step = rng.choice((-1, 1)) * (1 + _geometric(rng))
            changed[name] = values[max(0, min(len(values) - 1, at + step))]
    return changed


_JUMP = 0.3
_AGAIN = 0.4


def _geometric(rng: random.Random) -> int:
    """0 mostly, 1 less often, and so on."""
    count = 0
    while rng.random() < _AGAIN:
        count += 1
    return count


def remember(schedule: Any, knobs: Knobs) -> None:
    """Write knobs into the trace of a fresh schedule without changing its program."""
    text = " ".join(f"{name}={value}" for name, value in sorted(knobs.items()))
    root = schedule.get_sblock("root")
    schedule.annotate(root, KNOBS_KEY, text)
    schedule.unannotate(root, KNOBS_KEY)


def recall(payload: str) -> dict[str, int] | None:
    """The knobs that a trace's payload keeps, or None where it has none."""
    for kind, inputs, attributes, *_ in json.loads(payload)[0]:
        if kind == "Annotate" and list(attributes) == [KNOBS_KEY]:
            pairs = (pair.split("=") for pair in str(inputs[1]).strip('"').split())
            return {name: int(value) for name, value in pairs}
    return None
