"""The tasks of a module, chosen by name, operator, or share of its arithmetic."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.passes.base import ModulePass
from spaces.lowering.extract_tasks import extract
from spaces.targets.target import resolve_target
from tuner.errors import TunerError
from tuner.task import Task


@module_pass(opt_level=0, name="Extract")
class Extract(ModulePass):
    """Notes the tasks of a module in `tasks`, the heaviest first; the module stays as it is.

    Args:
        target: a TVM target, a kind, or JSON.
        only: glob on names.
        operators: words that a name must have one of, as `conv2d`; empty is any.
        least_share: of the module's operations, below which a task is left out.
    """

    def __init__(
        self,
        target: Any,
        *,
        only: str = "*",
        operators: Collection[str] = (),
        least_share: float = 0.0,
    ) -> None:
        self.target = resolve_target(str(target))
        self.tasks: tuple[Task, ...] = ()
        self._only, self._operators, self._least_share = only, tuple(operators), least_share

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        try:
            found = extract(module, self.target)
        except TunerError:  # there is nothing to tune
            found = []
        total = sum(task.weight * task.flops for task in found) or 1.0
        shares = {task.key: task.weight * task.flops / total for task in found}
        wanted = (task for task in found if self._is_wanted(task, shares[task.key]))
        self.tasks = tuple(sorted(wanted, key=lambda task: -shares[task.key]))
        return module

    def _is_wanted(self, task: Task, share: float) -> bool:
        named = fnmatch.fnmatchcase(task.name, self._only)
        of_these = not self._operators or any(word in task.name for word in self._operators)
        return named and of_these and share >= self._least_share
