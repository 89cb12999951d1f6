"""The VNNI intrinsics, registered with TVM where a program or a trace needs them.

A trace that uses them can only be applied in a process in which they are registered. So TVM's own
`MetaScheduleApplyDatabase`, on an exported database with such traces, raises an error that names
the missing intrinsic, unless `register_named` was called before with the text of the database's
records.
"""

from __future__ import annotations

from spaces.intrinsics.vnni import Dot, Mix, named
from spaces.intrinsics.vnni_code import description, implementation

_registered: set[Dot | Mix] = set()


def register(intrinsic: Dot | Mix) -> None:
    """Register an intrinsic with TVM, once in this process; it takes a few milliseconds."""
    if intrinsic in _registered:
        return
    from tvm.s_tir import TensorIntrin

    TensorIntrin.register(
        intrinsic.name, description(intrinsic), implementation(intrinsic), override=True
    )
    _registered.add(intrinsic)


def register_named(text: str) -> None:
    """Register each of our intrinsics that a text names, such as a trace or a database."""
    for intrinsic in named(text):
        register(intrinsic)
