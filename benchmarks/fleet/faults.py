"""What can happen to the parts of a fleet, done to a real one on this machine."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.fleet.guard import kill
from benchmarks.fleet.local import LocalFleet
from benchmarks.process_tree import kind_of
from cluster.spot_notice import Notice, drain, find_raylet

KINDS = ("child", "actor", "node", "search", "driver", "network", "drain")
"""A process or a node is killed without a word; a node is cut off from the others for a while, and
may come back with answers that nobody waits for any more; a node is told that it will go, and
goes."""
NODE = {"CPU": 1, "measure": 1}
NODES = 3
_STAYING = 1
_BACK_AFTER_S = (1.0, 4.0)
_CUT_OFF_S = (4.0, 20.0)
"""Ray takes some 15 seconds to give a machine up; ours takes six."""
_NOTICE_S = (6.0, 10.0)
_CHILDREN = ("space child", "builder child", "runner child")
_ACTORS = ("space actor", "builder actor", "runner actor")
_SEARCH = "search actor"


@dataclass(slots=True)
class Faults:
    """Hits parts of a fleet, the kind that was hit least first.

    Args:
        start_driver: starts the command again.
    """

    fleet: LocalFleet
    rng: random.Random
    start_driver: Callable[[], psutil.Popen]
    driver: psutil.Popen
    done: Counter[str] = field(default_factory=Counter)
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _doomed: list[Any] = field(default_factory=list)

    def inject(self) -> str:
        """Hit something of the kind that was hit least, where there is such a thing; its kind."""
        kinds = list(KINDS)
        self.rng.shuffle(kinds)
        for kind in sorted(kinds, key=lambda k: self.done[k]):
            if self._hit(kind):
                self.done[kind] += 1
                return kind
        return ""

    def mend(self, now_s: float) -> None:
        """Do what is due: nodes come back, or go as they were told."""
        due = [entry for entry in self._later if entry[0] <= now_s]
        for entry in due:
            self._later.remove(entry)
            entry[1]()

    def _hit(self, kind: str) -> bool:
        if kind == "driver":
            kill([self.driver])
            self.driver = self.start_driver()
            return True
        if kind in ("node", "network", "drain"):
            nodes = [node for node in self.fleet.nodes if node not in self._doomed]
            if len(nodes) <= _STAYING:
                return False
            node = self.rng.choice(nodes)
            return {"node": self._lose, "network": self._cut_off, "drain": self._drain}[kind](node)
        wanted = {"child": _CHILDREN, "actor": _ACTORS, "search": (_SEARCH,)}[kind]
        found = self._processes(wanted)
        if not found:
            return False
        kill([self.rng.choice(found)])
        return True

    def _lose(self, node: Any) -> bool:
        self.fleet.lose(node)
        self._after(_BACK_AFTER_S, lambda: self.fleet.add(NODE))
        return True

    def _cut_off(self, node: Any) -> bool:
        stopped = self.fleet.cut_off(node)

        def heal() -> None:
            for process in stopped:
                with contextlib.suppress(psutil.Error):
                    process.resume()
            self._after(_BACK_AFTER_S, see)

        def see() -> None:
            self._doomed.remove(node)
            if not self.fleet.lives(node):  # Ray had given it up
                self._lose(node)

        self._doomed.append(node)
        self._after(_CUT_OFF_S, heal)
        return True

    def _drain(self, node: Any) -> bool:
        raylet = find_raylet(self.fleet.processes_of(node))
        notice_s = self.rng.uniform(*_NOTICE_S)
        if raylet is None or not drain(raylet, Notice(notice_s, "chaos")):
            return False

        def leave() -> None:
            self._doomed.remove(node)
            self._lose(node)

        self._doomed.append(node)
        self._later.append((time.monotonic() + notice_s, leave))
        return True

    def _after(self, between_s: tuple[float, float], action: Callable[[], Any]) -> None:
        self._later.append((time.monotonic() + self.rng.uniform(*between_s), action))

    def _processes(self, kinds: Sequence[str]) -> list[psutil.Process]:
        found = []
        for process in self.fleet.processes():
            with contextlib.suppress(psutil.Error):
                if kind_of(process.cmdline()) in kinds:
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)
