"""The seams whose own implementations need TVM; objects of TVM are `Any` here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tuner.arrays import Features
from tuner.effort import Timing
from tuner.record import Record
from tuner.storage.facts import Fact


class KeepsRecords(Protocol):
    """A store beside the run's own, such as a team's database. Made with the run's folder; any
    `tuner.storage.base.RecordStore` is one."""

    def put(self, *facts: Fact) -> None:
        """Facts of a run that begins: its tasks, and the keys of their default candidates; they may
        come again."""

    def scan(self) -> Iterator[Record]:
        """All records that it has: those of the run's tasks are taken over."""

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> object:
        """Keep records, which the run's own store has, each with the features of its candidate
        where they are given. They may come again."""

    def close(self) -> None:
        """The run is over."""


class Extracts(Protocol):
    """Describes candidates for a cost model. Made with the target, as canonical JSON."""

    def extract(self, module_json: str, schedules: Sequence[Any]) -> Sequence[Features]:
        """One vector for each schedule, in order; of one length for all programs.

        Args:
            module_json: the program that was scheduled, as TVM's JSON.
            schedules: `tvm.s_tir.Schedule` objects, which must not be changed.
        """


class Mutates(Protocol):
    """Changes traces. Made with nothing."""

    def apply(self, trace: Any, rng: random.Random) -> Any:
        """A `tvm.s_tir.schedule.Trace` like the one given, which stays as it is; None where there
        is nothing to change. What is random comes from `rng`."""


class PostProcesses(Protocol):
    """Changes or refuses schedules once they are written. Made with nothing."""

    def apply(self, schedule: Any) -> bool:
        """Whether a `tvm.s_tir.Schedule`, which may be changed, is a candidate. The same schedule
        must be changed the same way in each process."""


class Compiles(Protocol):
    """Compiles candidates. Made with nothing."""

    def build(self, module: Any, target: Any) -> Any:
        """Compile a scheduled IRModule; return a `tvm.runtime.Module` with the same functions.

        What the compiler it calls raises is the failure of this candidate.
        """


class Times(Protocol):
    """Times kernels, whose output was found right before. Made with nothing."""

    def time(
        self,
        module: Any,
        arguments: Sequence[Any],
        device: Any,
        timing: Timing,
        cutoff_s: float | None,
    ) -> Sequence[float]:
        """Samples: seconds of one run each.

        Args:
            module: a `tvm.runtime.Module`, whose "main" is to be timed.
            arguments: of "main", on the device.
            timing: the effort's rules, to be kept to as far as they fit.
            cutoff_s: a kernel that is slower need not be timed further; None is no such time.
        """


class Provides(Protocol):
    """A library whose functions stand in for kernels. Made with nothing."""

    def symbol(self, program: Any) -> str | None:
        """The name of the function that computes a PrimFunc; None where there is none.

        It is called with the program's parameters in their order, and must leave alone those that
        the program only reads.
        """

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions by name. One of Python is called with numpy arrays on a CPU, and with
        TVM's tensors elsewhere; a `tvm_ffi.Function` is called as it is."""
