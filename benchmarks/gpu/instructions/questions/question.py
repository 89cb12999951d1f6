"""What a question to a device is.

It is a program like those of instructions, without an expectation: its answer is read from what the
device gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.spaces.emulation.instructions.program import Arrays, Program

Answer = Callable[[Arrays, Arrays], dict[str, Any]]
"""From a program's inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Question:
    """A program and how to read its outputs; `kept` puts them into the file of arrays."""

    asks: str
    program: Program
    answer: Answer
    kept: bool = True


def ask(name: str, source: str, make: Any, outputs: Arrays, **more: Any) -> Program:
    """A program that demands nothing; `outputs` have the shapes and types of its outputs."""
    return Program(
        name=f"ask.{name}",
        section="",
        source=source,
        make=make,
        expect=lambda *_inputs: outputs,
        **more,
    )
