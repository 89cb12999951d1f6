"""The check of outputs on the device that they are on.

A draw's inputs, expected outputs and bounds are sent once and stay; before a run its arguments are
copied from them, on the device. After it the device counts the elements that are neither equal to
the expected ones nor within their bounds. Where it counts none, the outputs are right. Where it
counts some, they are fetched and compared as on a CPU (`spaces.check.compare`), whose rules know
more and which says what is wrong. So nothing is found wrong by the device alone: a kernel that
wrote beyond its own arguments may have changed what is compared with.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.check.case import Case, Draw
from spaces.check.draws import Argument
from spaces.devices.checker import Array, how_wrong, raw, to_device
from spaces.devices.comparison import THREADS, Comparison, Kinds, compile_comparison

_log = logging.getLogger(__name__)
_SHARE = 4
"""Draws may take this part of a device's memory; the last one always is kept."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """The expected contents of one argument: equal to `want`, or within `bound` of it."""

    want: Any
    bound: Any | None
    kinds: Kinds


@dataclass(frozen=True, slots=True)
class _Sent:
    """A draw on the device.

    Attributes:
        whole: what is known of all elements of the outputs, if anything was.
        initial: contents of the arguments before a run.
        tensors: the arguments themselves.
        expected: contents of the arguments after a run; none where the outputs are not known.
    """

    case: Draw
    whole: Case | None
    initial: tuple[Any, ...]
    tensors: tuple[Any, ...]
    expected: tuple[_Expected, ...]
    size_bytes: int


class DeviceChecker:
    """Implements `spaces.devices.checker.Checker`.

    Args:
        device: TVM's.
        target: canonical JSON; comparisons are compiled for it.
        memory_bytes: the most that draws may take; None is a part of the device's memory.
    """

    def __init__(self, device: Any, target: str, memory_bytes: int | None = None) -> None:
        self._device, self._target = device, target
        if memory_bytes is None:
            memory_bytes = int(device.total_global_memory or 0) // _SHARE
        self._memory_bytes = memory_bytes
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        self._comparisons: dict[Kinds, Comparison | None] = {}
        self._counts: Any = None

    def feed(self, case: Draw) -> list[Any]:
        """See `Checker`. The tensors are the same for each run of a draw."""
        sent = self._of(case)
        for tensor, initial in zip(sent.tensors, sent.initial, strict=True):
            tensor.copyfrom(initial)
        return list(sent.tensors)

    def wrong(self, case: Draw, tensors: Sequence[Any]) -> str:
        """See `Checker`."""
        sent = self._of(case)
        if sent.expected and all(map(self._agrees, tensors, sent.expected)):
            return ""
        error = how_wrong(case, tensors)
        if not error and sent.expected:
            _log.info("what the device compares with is sent again")
        del self._sent[id(case)]  # it may have been changed by the same kernel
        return error

    def _of(self, case: Draw) -> _Sent:
        known = self._sent.get(id(case))
        is_same = known is not None and known.case is case  # an id may come again
        if known is None or not is_same or known.whole is not case.whole:
            known = self._sent[id(case)] = self._send(case)
        self._sent.move_to_end(id(case))
        held_bytes = sum(each.size_bytes for each in self._sent.values())
        while len(self._sent) > 1 and held_bytes > self._memory_bytes:
            _, dropped = self._sent.popitem(last=False)
            held_bytes -= dropped.size_bytes
        return known

    def _send(self, case: Draw) -> _Sent:
        fresh = [case.fresh(i) for i in range(len(case.arguments))]
        whole = case.whole
        expected = (
            [_compute_expected(whole, i, array) for i, array in enumerate(fresh)] if whole else []
        )
        size_bytes = 2 * sum(array.nbytes for array in fresh)
        size_bytes += sum(a.nbytes for pair in expected for a in pair if a is not None)
        return _Sent(
            case,
            whole,
            tuple(to_device(array, self._device) for array in fresh),
            tuple(self._empty(argument) for argument in case.arguments),
            tuple(self._send_expected(want, bound) for want, bound in expected),
            size_bytes,
        )

    def _empty(self, argument: Argument) -> Any:
        """A tensor for an argument, which `feed` fills."""
        import tvm

        return tvm.runtime.empty(argument.shape, argument.dtype, self._device)

    def _send_expected(self, want: Array, bound: Array | None) -> _Expected:
        kinds = Kinds(str(want.dtype), None if bound is None else str(bound.dtype))
        want = np.ascontiguousarray(want).reshape(-1)
        flat = None if bound is None else np.ascontiguousarray(bound).reshape(-1)
        return _Expected(
            to_device(want, self._device),
            None if flat is None else to_device(flat, self._device),
            kinds,
        )

    def _agrees(self, tensor: Any, expected: _Expected) -> bool:
        """Whether the device finds all elements equal, or within their bounds."""
        size = expected.want.shape[0]
        if size == 0:
            return True
        comparison = self._comparison(expected.kinds)
        if comparison is None:
            return False
        if self._counts is None:
            self._counts = to_device(np.zeros(THREADS, np.int32), self._device)
        got = tensor._create_view((size,), expected.kinds.got)
        comparison(got, expected.want, expected.bound, self._counts)
        return not self._counts.numpy().any()

    def _comparison(self, kinds: Kinds) -> Comparison | None:
        """The program for some types; None where there is none, as without a compiler."""
        if kinds not in self._comparisons:
            try:
                self._comparisons[kinds] = compile_comparison(kinds, self._target)
            except Exception as error:  # whatever TVM and the compiler throw
                _log.warning("outputs (%s) are compared on the CPU: %s", kinds.got, error)
                self._comparisons[kinds] = None
        return self._comparisons[kinds]


def _compute_expected(case: Case, position: int, fresh: Array) -> tuple[Array, Array | None]:
    """The contents of an argument after a run, and how far from them each element may be.

    Inputs and truth values are compared bit by bit.
    """
    if not case.arguments[position].written:
        return raw(fresh), None
    want = case.outputs[position]
    return (raw(want) if want.dtype == np.bool_ else want), case.bounds[position]
