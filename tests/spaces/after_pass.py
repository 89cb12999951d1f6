"""Programs as TVM's passes leave them on the way to code."""

from __future__ import annotations

from typing import Any


def modules_after(name: str, module: Any, target: str) -> list[Any]:
    """A module after each pass of this name, in the order of the passes, while it is compiled."""
    import tvm

    from spaces.targets.target import parse_target

    found: list[Any] = []

    @tvm.ir.instrument.pass_instrument
    class After:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if str(info.name).endswith(name):
                found.append(module)

    with tvm.transform.PassContext(instruments=[After()]):
        tvm.compile(module, target=parse_target(target))
    return found
