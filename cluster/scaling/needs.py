"""What workers have to make before they can do some jobs, and how that goes. Pure.

The first to make something does so alone: as long as nobody has, it may turn out that nobody can,
and the others have better things to do meanwhile. Once it was made by one, each makes its own.
What a worker then says it cannot make is refused for good. It is also refused once it was lost too
often with those who were the first to make it. What was made once is never refused: who fails at it
later only fails the job that it was for.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _State:
    makers: int = 0
    made: bool = False
    losses: int = 0
    refused: str = ""


class Needs:
    """How far each need is.

    Args:
        attempts: how often one may be lost before it is refused.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._states: dict[Hashable, _State] = {}

    def may_begin(self, need: Hashable) -> bool:
        """Whether a worker should make it now."""
        state = self._of(need)
        return state.made or not state.makers

    def refused(self, need: Hashable) -> str:
        """Why nobody can make it; empty where that is not known."""
        state = self._states.get(need)
        return state.refused if state is not None else ""

    def made(self, need: Hashable) -> bool:
        """Whether somebody has made it."""
        return self._of(need).made

    def begin(self, need: Hashable) -> None:
        """A worker makes it from now on."""
        self._of(need).makers += 1

    def end(self, need: Hashable) -> None:
        """It was made."""
        state = self._of(need)
        state.makers -= 1
        state.made = True

    def lose(self, need: Hashable, reason: str) -> None:
        """It was lost with the worker that made it."""
        state = self._of(need)
        state.makers -= 1
        state.losses += 1
        if state.losses >= self._attempts and not state.made:
            state.refused = f"lost {state.losses} times: {reason}"

    def refuse(self, need: Hashable, reason: str) -> None:
        """A worker said that it cannot make it."""
        state = self._of(need)
        state.makers -= 1
        if not state.made:
            state.refused = reason

    def _of(self, need: Hashable) -> _State:
        return self._states.setdefault(need, _State())
