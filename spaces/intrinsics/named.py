"""The tensor intrinsics that a text names, such as a trace or a database, registered with TVM.

A trace that uses intrinsics can only be applied in a process in which they are registered. So TVM's
own `MetaScheduleApplyDatabase`, on an exported database with such traces, raises an error that
names the missing intrinsic, unless `register_named` was called before with the text of the
database's records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spaces.intrinsics.registration import register_intrinsics
from spaces.intrinsics.vnni import named
from spaces.intrinsics.vnni_registry import register

_STOCK: Mapping[str, re.Pattern[str]] = {
    "cuda": re.compile(r'"(?:wmma|mma)_\w+"'),
    "arm_cpu": re.compile(r'"(?:dot_4x4_\w+_(?:neon|sdot|hdot|udot)|sme_\w+)"'),
}
"""What the names of each of TVM's families look like in JSON."""


def register_named(text: str) -> None:
    """Register each intrinsic that a text names: ours, and TVM's by family, a second time for
    nothing."""
    for intrinsic in named(text):
        register(intrinsic)
    for family, pattern in _STOCK.items():
        if pattern.search(text):
            register_intrinsics(family)
