"""All questions."""

from __future__ import annotations

from functools import cache

from benchmarks.gpu.instructions.questions import errors, memory, special, sums
from benchmarks.gpu.instructions.questions.question import Question


@cache
def questions() -> dict[str, Question]:
    """All of them, by name."""
    asked = [question for room in (sums, special, memory, errors) for question in room.questions()]
    return {question.program.name: question for question in asked}
