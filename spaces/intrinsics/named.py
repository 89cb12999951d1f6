"""The tensor intrinsics that a text names, such as a trace or a database, registered with TVM.

A trace that uses intrinsics can only be applied in a process in which they are registered. So TVM's
own `MetaScheduleApplyDatabase`, on an exported database with such traces, raises an error that
names the missing intrinsic, unless `register_named` was called before with the text of the
database's records.
"""

from __future__ import annotations

from spaces.intrinsics.registration import families_named, register_intrinsics
from spaces.intrinsics.vnni import find_intrinsics
from spaces.intrinsics.vnni_registry import register


def register_named(text: str) -> None:
    """Register each intrinsic that a text names: ours, and TVM's by family, a second time for
    nothing."""
    for intrinsic in find_intrinsics(text):
        register(intrinsic)
    for family in families_named(text):
        register_intrinsics(family)
