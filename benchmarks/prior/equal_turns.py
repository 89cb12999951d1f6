"""An allocator that gives all tasks as many trials."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.view.task_view import TaskView


class EqualTurns:
    """The task with the fewest trials comes first."""

    def order(self, views: Sequence[TaskView]) -> Sequence[str]:
        """See `tuner.session.allocator.Allocator`."""
        return [view.key for view in sorted(views, key=lambda view: view.trials)]
