"""What all passes of `tuner.passes` are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class ModulePass:
    """A pass from IRModule to IRModule. TVM's decorator makes it one that can be called."""

    if TYPE_CHECKING:

        def __call__(self, module: Any) -> Any:
            """Run it; the given module stays as it is."""
