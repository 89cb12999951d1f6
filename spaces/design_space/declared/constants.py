"""A schedule's constants as decisions: from one schedule to all that are like it.

Each literal factor of a split, and each limit on unrolling, is drawn from values around it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir.schedules import new_schedule, whole_payload

Instruction = list[Any]
"""An instruction of a trace in TVM's JSON: kind, inputs, attributes, outputs."""
Decisions = list[list[Any]]
"""Of a trace in TVM's JSON: the number of an instruction, and what it drew."""

_OPEN = "None"
_DRAWN = "constant"
_ANY: Mapping[int, Sequence[int]] = {}
_TIMES = (2, 4)
_UNROLLS = (0, 16, 64, 256, 512, 1024)
_KEPT = 0.7
"""The odds that a constant is drawn as it was."""
_LANES = 4
"""A GPU's vectors are not made longer than this, but for those that were."""


def open_drawn(schedule: Any, module: Any) -> Any:
    """A schedule of the module with the instructions of another, whose constants are drawn; in this
    one as they were.

    A constant is drawn from those values with which, all others being as they were, the schedule
    can be made: the sizes of tensor intrinsics stay.
    """
    known = json.loads(whole_payload(schedule.trace))
    instructions, decisions = open_constants(*known)
    choices = {
        int(name.removeprefix(_DRAWN)): _possible(at, place, instructions, decisions, module)
        for at, place in decisions
        if (name := str(instructions[at][3][0])).startswith(_DRAWN)
    }
    return _apply(*open_constants(known[0], known[1], choices), module)


def _possible(
    at: int, place: int, instructions: list[Instruction], decisions: Decisions, module: Any
) -> list[int]:
    """The choices of a draw with which the schedule can be made."""
    values, found = instructions[at][2][0], []
    for other, value in enumerate(values):
        changed = [[n, other if n == at else decided] for n, decided in decisions]
        try:
            if other != place:
                _apply(instructions, changed, module)
        except Exception:  # TVM raises whatever its C++ side threw
            continue
        found.append(value)
    return found


def _apply(instructions: list[Instruction], decisions: Decisions, module: Any) -> Any:
    from tvm.s_tir.schedule import Trace

    fresh = new_schedule(module, errors="none")
    Trace.apply_json_to_schedule([instructions, decisions], fresh)
    return fresh


def open_constants(
    instructions: Sequence[Instruction],
    decisions: Decisions,
    choices: Mapping[int, Sequence[int]] = _ANY,
) -> tuple[list[Instruction], Decisions]:
    """Instructions and decisions of a trace, in which each constant is a draw that gives it.

    Factors that become the extent of one axis of threads are one draw, as all blocks of a kernel
    have the same threads.

    Args:
        choices: of the constants, by number, those that are not drawn from all values around them;
            a single choice is no draw.
    """
    opener = _Opener(instructions, choices)
    known = {int(at): decision for at, decision in decisions}
    for number, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if kind == "Split":
            inputs = opener.split(inputs, outputs)
        elif kind == "Annotate" and attributes[0] == "pragma_auto_unroll_max_step":
            inputs = [inputs[0], opener.unrolled(inputs[1])]
        opener.follow([kind, inputs, attributes, outputs], known.get(number))
    return opener.instructions, opener.decisions


class _Opener:
    """The instructions so far, with those that draw."""

    def __init__(
        self, instructions: Sequence[Instruction], choices: Mapping[int, Sequence[int]]
    ) -> None:
        self.instructions: list[Instruction] = []
        self.decisions: Decisions = []
        self._choices = choices
        self._constants = 0
        self._threads = {i[1][0]: str(i[2][0]) for i in instructions if i[0] == "Bind"}
        self._vectors = {i[1][0] for i in instructions if i[0] == "Vectorize"}
        self._shared: dict[tuple[str, int], str | int] = {}

    def follow(self, instruction: Instruction, decision: Any) -> None:
        if decision is not None:
            self.decisions.append([len(self.instructions), decision])
        self.instructions.append(instruction)

    def split(self, inputs: list[Any], outputs: Sequence[str]) -> list[Any]:
        """A split's inputs, its literal factors drawn.

        One without an open factor is left alone where its outermost loop is an axis of threads,
        else that factor is open, as the product would no longer be the extent.
        """
        loop, *factors = inputs
        if all(isinstance(factor, int) for factor in factors):
            if outputs[0] in self._threads:
                return inputs
            factors[0] = _OPEN
        pairs = zip(factors, outputs, strict=True)
        return [loop, *(self._factor(value, made) for value, made in pairs)]

    def _factor(self, value: Any, made: str) -> Any:
        if not isinstance(value, int):
            return value
        axis = self._threads.get(made, "")
        if not axis.startswith("threadIdx"):
            short = made in self._vectors and bool(self._threads)
            return self._draw(value, _around(value, _LANES if short else None))
        if (axis, value) not in self._shared:
            self._shared[axis, value] = self._draw(value, _around(value, None))
        return self._shared[axis, value]

    def unrolled(self, value: Any) -> Any:
        """A limit on unrolling, drawn."""
        if not isinstance(value, int):
            return value
        return self._draw(value, sorted({value, *_UNROLLS}))

    def _draw(self, value: int, around: Sequence[int]) -> str | int:
        """The name of a number that is drawn in a constant's place; the constant where there is no
        choice."""
        number, self._constants = self._constants, self._constants + 1
        choices = list(self._choices.get(number, around))
        if len(choices) == 1:
            return value
        others = (1 - _KEPT) / (len(choices) - 1)
        odds = [_KEPT if choice == value else others for choice in choices]
        name = f"{_DRAWN}{number}"
        self.follow(["SampleCategorical", [], [choices, odds], [name]], choices.index(value))
        return name


def _around(value: int, most: int | None) -> list[int]:
    """Values like a factor: its whole parts and its multiples, by small powers of two."""
    less = {value // times for times in _TIMES if value % times == 0}
    more = {value * times for times in _TIMES if most is None or value * times <= most}
    return sorted({value, *less, *more})
