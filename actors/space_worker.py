"""A space worker: drafts in, evaluated candidates out, the heavy work done by a child process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.candidate import Draft
from tuner.child import Child, Outcome, Raised, Returned
from tuner.measure import Evaluated
from tuner.task import Task

_START_S = 60.0
_RECYCLE_BYTES = 700 << 20


class SpaceWorker:
    """Supervises one evaluator.

    A draft on which the evaluator crashes or hangs is answered with the reason; the others of
    its batch are not lost with it.

    Args:
        log: file for what the child prints; None drops it.
        seed: of the cost model's loader.
        on_child: told the process id of each new child, so that others can freeze it.
        frozen_s: seconds this node has spent frozen; they do not count against deadlines.
    """

    def __init__(
        self,
        *,
        log: Path | None = None,
        seed: int = 0,
        on_child: Callable[[int], None] = lambda pid: None,
        frozen_s: Callable[[], float] | None = None,
        recycle_bytes: int = _RECYCLE_BYTES,
    ) -> None:
        self._log = log
        self._seed = seed
        self._on_child = on_child
        self._frozen_s = frozen_s
        self._recycle_bytes = recycle_bytes
        self._tasks: dict[str, Task] = {}
        self._model: tuple[int, bytes] | None = None
        self._child: Child | None = None

    def ready(self) -> None:
        """Start the child, if there is none, and wait for it.

        Raises:
            RuntimeError: it does not start; the reason is its text.
        """
        if self._child is not None and self._child.alive:
            return
        self.close()
        self._child = Child("spaces.evaluate:make_evaluator", (self._seed,), log=self._log)
        self._on_child(self._child.pid)
        outcome = self._child.ready(_START_S, frozen_s=self._frozen_s)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"space worker: {outcome}")
        if self._tasks:
            self._call("put_tasks", list(self._tasks.values()), deadline_s=_START_S)
        if self._model is not None:
            self._call("use_model", *self._model, deadline_s=_START_S)

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """Make tasks known, to this child and its successors."""
        self._tasks.update((task.key, task) for task in tasks)
        if self._child is not None and self._child.alive:
            self._call("put_tasks", list(tasks), deadline_s=_START_S)

    def use_model(self, version: int, model: bytes) -> None:
        """Score with this cost model from now on."""
        if self._model is not None and self._model[0] >= version:
            return
        self._model = (version, model)
        if self._child is not None and self._child.alive:
            self._call("use_model", version, model, deadline_s=_START_S)

    def evaluate(self, drafts: Sequence[Draft], deadline_s: float) -> list[Evaluated]:
        """One answer for each draft, in order.

        Args:
            deadline_s: for the whole batch; after a crash, for each draft of it.
        """
        self.ready()
        outcome = self._call("evaluate", list(drafts), deadline_s=deadline_s)
        if isinstance(outcome, Returned):
            self._recycle()
            answers: list[Evaluated] = outcome.value
            return answers
        if len(drafts) == 1 or isinstance(outcome, Raised):
            return [Evaluated(draft, error=f"evaluation: {outcome}") for draft in drafts]
        return [self.evaluate([draft], deadline_s)[0] for draft in drafts]

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.close()
            self._child = None

    def _call(self, method: str, *args: object, deadline_s: float) -> Outcome:
        assert self._child is not None
        return self._child.call(method, *args, deadline_s=deadline_s, frozen_s=self._frozen_s)

    def _recycle(self) -> None:
        """Let a child that has grown too large go; the next call starts a fresh one."""
        if self._child is not None and self._child.rss_bytes() > self._recycle_bytes:
            self.close()
