"""A space worker: drafts in, evaluated candidates out, the heavy work done by a child process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from actors.quiet_lock import Quiet
from actors.warm_child import HOARDING, WarmChild
from tuner.candidate import Draft
from tuner.layers import OURS, Layers
from tuner.measure import Evaluated
from tuner.process.outcome import Outcome, Raised, Returned
from tuner.task import Task

_START_DEADLINE_S = 120.0
_RECYCLE_RSS_BYTES = 700 << 20
_MEMORY_LIMIT_BYTES = 4 << 30
_CHILD = "spaces.design_space.evaluate:make_evaluator"


class SpaceWorker:
    """Supervises one evaluator. Used by one thread, which must live as long as it does.

    A draft on which the evaluator crashes or hangs is answered with the reason; the other drafts
    of its batch are evaluated all the same.

    Args:
        log_dir: folder for the child's output.
        quiet: the node's quiet lock where kernels are timed on its CPU, else None.
        name: name of the log file.
        layers: of the user's, see `spaces.design_space.evaluate.Evaluator`.
        child: factory of the child's object; a parameter for tests.
    """

    def __init__(
        self,
        *,
        log_dir: Path,
        quiet: Quiet | None = None,
        name: str = "space",
        layers: Layers = OURS,
        child: str = _CHILD,
    ) -> None:
        self._tasks: dict[str, Task] = {}
        self._model: tuple[int, bytes] | None = None
        self._child = WarmChild(
            child,
            (0, layers) if layers else (),
            env={
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "TVM_NUM_THREADS": "1",
                **HOARDING,
            },
            log=log_dir / f"{name}.log",
            quiet=quiet,
            memory_limit_bytes=_MEMORY_LIMIT_BYTES,
        )

    def ready(self, deadline_s: float = _START_DEADLINE_S) -> None:
        """Have a warm child that knows all tasks and the newest model.

        Raises:
            RuntimeError: the child does not start; the text says why.
        """
        outcome = self._child.ready(deadline_s)
        if isinstance(outcome, Returned) and self._child.fresh:
            self._child.fresh = False
            outcome = self._call("put_tasks", list(self._tasks.values()))
            if self._model is not None and isinstance(outcome, Returned):
                outcome = self._call("use_model", *self._model)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"space worker did not start: {outcome}")

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """Make tasks known to this child and its successors."""
        self._tasks.update((task.key, task) for task in tasks)
        self._child.fresh = True

    def use_model(self, version: int, model: bytes) -> None:
        """Score with this cost model from now on; a model older than the one in use is ignored."""
        if self._model is None or version > self._model[0]:
            self._model = (version, model)
            self._child.fresh = True

    def evaluate(self, drafts: Sequence[Draft], deadline_s: float) -> list[Evaluated]:
        """Evaluate drafts; return one answer for each, in order.

        Args:
            deadline_s: for the batch; after a crash or a hang, for each draft of it.
        """
        self.ready()
        outcome = self._call("evaluate", list(drafts), deadline_s=deadline_s)
        if isinstance(outcome, Returned):
            if self._child.rss_bytes() > _RECYCLE_RSS_BYTES:
                self._child.replace()
            answers: list[Evaluated] = outcome.value
            return answers
        if len(drafts) == 1 or isinstance(outcome, Raised):
            fault = outcome.fault if isinstance(outcome, Raised) else ""
            said = f"evaluation: {outcome}"
            return [Evaluated(draft, error=said, fault=fault) for draft in drafts]
        return [self.evaluate([draft], deadline_s)[0] for draft in drafts]

    def stopwatch(self) -> Callable[[], float]:
        """Start a stopwatch that leaves out time that the node spends frozen."""
        return self._child.stopwatch()

    def close(self) -> None:
        """Stop the child and remove what it left on disk."""
        self._child.close()

    def leave(self) -> None:
        """Remove its files on disk, from any thread of a process that is about to end."""
        self._child.leave()

    def _call(self, method: str, *args: object, deadline_s: float = _START_DEADLINE_S) -> Outcome:
        return self._child.call(method, *args, deadline_s=deadline_s)
