"""A schedule that takes its decisions from a list, as far as they fit, and draws the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from spaces.ir.schedules import tvm_seed


def drawing_schedule(module: Any, seed: int, given: Sequence[Any]) -> Any:
    """A `tvm.s_tir.Schedule` of a module.

    Args:
        given: decisions of its sampling instructions, in order; None is one that is drawn. One that
            does not fit where it stands is drawn as well: another draw before it may have led the
            function somewhere else.
    """
    schedule = _class()(module, seed=tvm_seed(seed), error_render_level="fast")
    schedule.given = list(reversed(given))
    return schedule


@cache
def _class() -> Any:
    from tvm.s_tir import Schedule

    class Drawing(Schedule):  # type: ignore[misc]
        __slots__ = ("given",)

        def sample_categorical(self, *args: Any, **more: Any) -> Any:
            return self._draw(super().sample_categorical, args, more)

        def sample_perfect_tile(self, *args: Any, **more: Any) -> Any:
            return self._draw(super().sample_perfect_tile, args, more)

        def sample_partitioned_tile(self, *args: Any, **more: Any) -> Any:
            return self._draw(super().sample_partitioned_tile, args, more)

        def sample_compute_location(self, *args: Any, **more: Any) -> Any:
            return self._draw(super().sample_compute_location, args, more)

        def _draw(self, sample: Callable[..., Any], args: Any, more: dict[str, Any]) -> Any:
            decision = self.given.pop() if self.given else None
            if decision is not None and more.get("decision") is None:
                try:
                    return sample(*args, **{**more, "decision": decision})
                except (TypeError, ValueError, RuntimeError):
                    pass  # it does not fit here
            return sample(*args, **more)

    return Drawing
