"""Libraries as contestants: their functions are used where they are faster than a kernel."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.driver.layers import collect_offers
from cluster.app.passes.base import ModulePass
from cluster.app.passes.defaults import Defaults
from cluster.app.passes.gate import Gate, gate
from spaces.deploy.provenance import Origin, open_functions, origins, put
from spaces.ir import tvm_compat
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import symbols
from spaces.libraries.calls import make_call
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tuner.candidate import Candidate, library_name
from tuner.errors import TunerError, UsageError, first_line
from tuner.layers import Layers
from tuner.record import Measurement, Status
from tuner.source import Source
from tuner.task import Task
from tuner.user_code.find import find_layer, resolve_layer

_NEAR = 1.25
"""Times that differ by more than this are not taken again."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Side:
    """A function in a contest.

    Attributes:
        library: the space of the library that it calls; empty of a kernel.
        said: what it is, for people.
    """

    function: Any
    library: str
    said: str


@module_pass(opt_level=0, name="LibraryDispatch")
class LibraryDispatch(ModulePass):
    """Calls a library where its function is faster than what other passes put in.

    Each function that nobody has scheduled and that a library can compute is timed twice, in
    processes of their own: as the other passes schedule it, and as a call of the library. Outputs
    are compared with the program's. The faster of both is put in; times that are close are taken
    three times, in turns. `missed` says where a library lost, or could not take part. All other
    functions stay open.

    Wherever the module runs, the library's functions must be registered: `tuner.passes.register`.

    Args:
        libraries: classes, or texts as `--library` takes them; see
            `tuner.contracts.seams.Provides`.
        target: a TVM target, a kind, or JSON.
        against: passes that schedule what the libraries are compared with; none is `Defaults`.

    Raises:
        TunerError: a library cannot be used.
    """

    def __init__(self, *libraries: Any, target: Any, against: Sequence[Any] = ()) -> None:
        if not libraries:
            raise UsageError("LibraryDispatch: name a library")
        tvm_compat.keep_error_kind(TunerError)
        self.target = resolve_target(str(target))
        self.missed: dict[str, str] = {}
        self._layers = Layers(libraries=tuple(map(library_source, libraries)))
        self._against = tuple(against) or (Defaults(self.target),)

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        from tvm.ir.transform import Sequential

        self.missed = {}
        tasks = {
            name: task_of(function, self.target, name=name)
            for name, function in open_functions(module)
            if not symbols(function)
        }
        offers = collect_offers(self._layers, tuple({t.key: t for t in tasks.values()}.values()))
        wanted = {n: t for n, t in tasks.items() if t.key in offers.candidates}
        if not wanted:
            return module
        rivals = Sequential(list(self._against))(module)
        of_rivals, found = origins(rivals), {}
        with gate(self.target, layers=self._layers) as checked:
            for name, task in wanted.items():
                rival = _Side(rivals[name], "", _said(of_rivals[name]))
                calls = [_call(task, candidate) for candidate in offers.candidates[task.key]]
                won = self._contest(name, task, rival, calls, checked)
                if won is None:
                    continue
                side, seconds, why = won
                if side.library:
                    found[name] = side.function, Origin("library", side.said, why, seconds)
                elif of_rivals[name].how != "none":
                    origin = replace(of_rivals[name], latency_s=seconds)
                    found[name] = rivals[name], origin
        return put(module, found)

    def _contest(
        self, name: str, task: Task, rival: _Side, calls: Sequence[_Side], checked: Gate | None
    ) -> tuple[_Side, float, str] | None:
        """The fastest side, its time, and what speaks for it; None where none can be timed."""
        if checked is None:
            self.missed[name] = "kernels of the target cannot be timed on this machine"
            return None
        timed = _time(task, [rival, *calls], checked)
        for side, measured in timed.failed:
            if side.library:
                self.missed[name] = f"{side.said}: {first_line(ValueError(measured.error))}"
        if not timed.medians_s:
            return None
        number = min(timed.medians_s, key=lambda i: timed.medians_s[i])
        best, seconds = [rival, *calls][number], timed.medians_s[number]
        others = [
            f"{side.said} took {timed.medians_s[i] / seconds:.2f} times as long"
            for i, side in enumerate([rival, *calls])
            if i != number and i in timed.medians_s
        ]
        if not best.library:
            self.missed[name] = "; ".join(others) or self.missed.get(name, "")
        else:
            self.missed.pop(name, None)
        return best, seconds, "; ".join(others) or "nothing else gave the right output"


@dataclass(frozen=True, slots=True)
class _Times:
    """Medians by the number of the side, in seconds, and the sides that gave no time."""

    medians_s: dict[int, float]
    failed: list[tuple[_Side, Measurement]]


def _time(task: Task, sides: Sequence[_Side], checked: Gate) -> _Times:
    """Time sides in turns: those that are near the fastest more than once."""
    times: dict[int, list[float]] = {}
    failed: list[tuple[_Side, Measurement]] = []
    left = list(range(len(sides)))
    for _ in range(_ROUNDS):
        for i in left:
            measured = checked.measured(task, sides[i].function, library=sides[i].library)
            if measured.status is Status.OK and measured.latency_s is not None:
                times.setdefault(i, []).append(measured.latency_s)
            else:
                failed.append((sides[i], measured))
                times.pop(i, None)
        medians_s = {i: statistics.median(found) for i, found in times.items()}
        limit_s = _NEAR * min(medians_s.values(), default=0.0)
        left = [i for i, median_s in medians_s.items() if median_s <= limit_s]
        if len(left) < 2:
            break
    return _Times(medians_s, failed)


def _call(task: Task, candidate: Candidate) -> _Side:
    program = task_module(task.module)["main"]
    return _Side(make_call(program, candidate), candidate.space, library_name(candidate.space))


def _said(origin: Origin) -> str:
    return f"{origin.source} ({origin.how})" if origin.source else "the program as it is"


def library_source(library: Any) -> Source:
    """The file of a library's class, or of what names one."""
    if isinstance(library, Source):
        return library
    if isinstance(library, str | Path):
        return find_layer(str(library), "libraries")
    return resolve_layer(library, "libraries")
