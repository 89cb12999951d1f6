"""What a program takes at least, by its operations and its bytes, on this machine as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster.app.passes.gate import Gate
from spaces.ir import tvm_compat
from spaces.ir.schedules import task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.backends import backend_of
from tuner.errors import TunerError
from tuner.record import Status
from tuner.task import Task

_SIDES, _SIDES_OF_GPU = (128, 256, 384), (512, 1024, 2048, 4096)
"""Of the matrices that are multiplied; the fastest product counts."""
_LEAST_BYTES, _MOST_BYTES = 1 << 12, 1 << 28
_FLOAT_BITS = 32


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of a program.

    Attributes:
        bound: what takes it, `operations` or `bytes`.
    """

    seconds: float
    bound: str


class Roofline:
    """The roofline model (Williams, Waterman, Patterson 2009), both roofs measured where they are
    needed: operations by products of matrices, bytes by copies of as many bytes, which are in a
    cache or not as the program's are.

    Operations on narrower elements are taken to be faster in proportion.

    Args:
        target: canonical JSON.
        scheduled: the default schedule of a task; None where none fits.
    """

    def __init__(self, target: str, checked: Gate, scheduled: Callable[[Task], Any]) -> None:
        self._target, self._checked, self._scheduled = target, checked, scheduled
        self._bytes_per_s: dict[int, float] = {}

    def floor(self, task: Task) -> Floor:
        """The floor of a static task.

        Raises:
            TunerError: this machine could not be measured.
        """
        bits, size_bytes = _widest_bits(task), _size_bytes(task)
        operations_s = task.flops / (self._flops_per_s * _FLOAT_BITS / bits)
        bytes_s = size_bytes / self._rate_of(size_bytes)
        return max(
            Floor(operations_s, "operations"), Floor(bytes_s, "bytes"), key=lambda f: f.seconds
        )

    @cached_property
    def _flops_per_s(self) -> float:
        sides = _SIDES if backend_of(self._target).on_host else _SIDES_OF_GPU
        rates = [2.0 * side**3 / self._seconds(_product(side)) for side in sides]
        return max(rates)

    def _rate_of(self, size_bytes: int) -> float:
        """Bytes a second of a copy of about as many."""
        power = 1 << max(0, size_bytes).bit_length()
        power = min(max(power, _LEAST_BYTES), _MOST_BYTES)
        if power not in self._bytes_per_s:
            self._bytes_per_s[power] = power / self._seconds(_copy(power // 8))
        return self._bytes_per_s[power]

    def _seconds(self, program: Any) -> float:
        task = task_of(program, self._target, name="roofline")
        measured = self._checked.measured(task, self._scheduled(task) or program)
        if measured.status is not Status.OK or not measured.latency_s:
            raise TunerError(f"the machine's roofline cannot be measured: {measured.error}")
        return measured.latency_s


def _product(side: int) -> Any:
    from tvm import te, topi

    a, b = (te.placeholder((side, side), name=name) for name in "ab")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def _copy(count: int) -> Any:
    from tvm import te

    x = te.placeholder((count,), name="x")
    return te.create_prim_func([x, te.compute((count,), lambda i: x[i] + 1.0, name="y")])


def _size_bytes(task: Task) -> int:
    """Bytes of all parameters of a static program."""
    sizes = []
    for param in task_module(task.module)["main"].params:
        dims = [tvm_compat.as_int(dim) for dim in tvm_compat.param_dims(param) or ()]
        bits = tvm_compat.element_bits(tvm_compat.param_dtype(param))
        sizes.append(math.prod(dim or 0 for dim in dims) * bits // 8)
    return sum(sizes)


def _widest_bits(task: Task) -> int:
    """Bits of the widest element that a program takes or gives."""
    params = task_module(task.module)["main"].params
    return max(tvm_compat.element_bits(tvm_compat.param_dtype(param)) for param in params)
