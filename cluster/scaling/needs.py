"""Needs: things that a worker must make before it can do some jobs. Pure.

The first worker to make a need does so alone: until one has made it, it may turn out that none can,
and the others have better things to do meanwhile. Once one has made it, each makes its own. A need
is refused for good when a worker says that it cannot make it, or when too many workers were lost
while they made it, and no worker has made it yet. A need that was made once is never refused: a
worker that fails at it later only fails the job that it was for.
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
    """The state of each need.

    Args:
        attempts: number of losses after which a need is refused.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._states: dict[Hashable, _State] = {}

    def may_begin(self, need: Hashable) -> bool:
        """Whether a worker should make the need now."""
        state = self._of(need)
        return state.made or not state.makers

    def refused(self, need: Hashable) -> str:
        """The reason why no worker can make the need; empty if it is not refused."""
        state = self._states.get(need)
        return state.refused if state is not None else ""

    def made(self, need: Hashable) -> bool:
        """Whether a worker has made the need."""
        return self._of(need).made

    def begin(self, need: Hashable) -> None:
        """A worker begins to make the need."""
        self._of(need).makers += 1

    def end(self, need: Hashable) -> None:
        """A worker has made the need."""
        state = self._of(need)
        state.makers -= 1
        state.made = True

    def lose(self, need: Hashable, reason: str) -> None:
        """A worker was lost while it made the need."""
        state = self._of(need)
        state.makers -= 1
        state.losses += 1
        if state.losses >= self._attempts and not state.made:
            state.refused = f"lost {state.losses} times: {reason}"

    def refuse(self, need: Hashable, reason: str) -> None:
        """A worker said that it cannot make the need."""
        state = self._of(need)
        state.makers -= 1
        if not state.made:
            state.refused = reason

    def _of(self, need: Hashable) -> _State:
        return self._states.setdefault(need, _State())
