"""A CUDA device that is a clock: it launches, records, throttles and fails as a real one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spaces.devices.health import Health
from spaces.devices.runtime import DeviceFault

LAUNCH_S, GRAPH_S, FILL_S_PER_BYTE = 4.5e-6, 5e-6, 1 / 3e12


@dataclass
class FakeKernel:
    """Takes `warm_s` where its data lie in the cache, else `cold_s`."""

    runtime: FakeRuntime
    warm_s: float
    cold_s: float
    runs: int = 0
    took_s: float = 0.0

    def get_function(self, _name: str, *, query_imports: bool = False) -> Callable[..., None]:
        return lambda *_arguments: self.runtime.enqueue(self)


@dataclass
class FakeRuntime:
    """Implements `spaces.devices.runtime.Runtime`; seconds pass by work alone."""

    now_s: float = 0.0
    clocks: list[float] = field(default_factory=lambda: [1.0])
    """The share of the full clock, sample by sample; the last one stays."""
    asleep_s: float = 0.0
    """Seconds of work at first that it does at a sixth of its clock."""
    fails: dict[str, str] = field(default_factory=dict)
    """The error that a call gives, by the call's name."""
    recording: list[object] | None = None
    open_graphs: int = 0
    in_cache: object = None

    def enqueue(self, work: object) -> None:
        if self.recording is not None:
            self.recording.append(work)
            return
        self._fail("launch")
        self.now_s += LAUNCH_S
        self.run(work)

    def run(self, work: object) -> None:
        share = self.clocks[0] if self.now_s >= self.asleep_s else 1 / 6
        if isinstance(work, FakeKernel):
            work.runs += 1
            work.took_s = (work.warm_s if self.in_cache is work else work.cold_s) / share
            self.now_s += work.took_s
            self.in_cache = work
        elif isinstance(work, int):
            self.now_s += work * FILL_S_PER_BYTE / share
            self.in_cache = None

    def synchronize(self) -> None:
        self._fail("synchronize")

    def graph(self, enqueue: Sequence[Callable[[], None]], times: int = 1) -> FakeGraph:
        self._fail("graph")
        self.recording = recorded = []
        try:
            for _ in range(times):
                for each in enqueue:
                    each()
        finally:
            self.recording = None
        self.open_graphs += 1
        return FakeGraph(self, recorded)

    def memset(self, size_bytes: int) -> Callable[[], None]:
        self._fail("memset")
        return lambda: self.enqueue(size_bytes)

    def health(self) -> Health:
        """Throttled whenever it is not at its full clock."""
        slow = self.clocks[0] < 1
        return Health(int(1980 * self.clocks[0]), 1980, 50, 300.0, ("temperature",) if slow else ())

    def cool(self, _pause_s: float) -> None:
        if len(self.clocks) > 1:
            self.clocks.pop(0)

    def _fail(self, call: str) -> None:
        if call in self.fails:
            raise DeviceFault(call, self.fails[call])


@dataclass
class FakeGraph:
    """Implements `spaces.devices.runtime.Graph`."""

    runtime: FakeRuntime
    recorded: list[object]

    def launch(self, replays: int) -> float:
        self.runtime._fail("launch")
        before_s = self.runtime.now_s
        for _ in range(replays):
            self.runtime.now_s += GRAPH_S
            for work in self.recorded:
                self.runtime.run(work)
        return self.runtime.now_s - before_s

    def close(self) -> None:
        self.runtime.open_graphs -= 1
