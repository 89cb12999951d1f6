"""The VNNI intrinsics, registered with TVM where a program needs them."""

from __future__ import annotations

from spaces.intrinsics.vnni import Dot, Mix
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
