"""What processes listen on: every TCP listener and every open UDP socket, IPv4 and IPv6."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import psutil

from benchmarks.fleet.guard import MARK, marked
from cluster.ray_workers.loopback import is_loopback

_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, order=True)
class Listener:
    """A socket that takes what comes, and the process that has it."""

    process: str
    kind: str
    host: str

    @property
    def outside(self) -> bool:
        """Whether another machine could reach it."""
        return not is_loopback(self.host.removeprefix("::ffff:"))


def listeners(processes: Iterable[psutil.Process]) -> set[Listener]:
    """All listeners of these processes; of one that ends meanwhile none."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            name = process.name()
            for line in process.net_connections("inet"):
                udp = line.type == socket.SOCK_DGRAM
                if line.laddr and (not line.raddr if udp else line.status == psutil.CONN_LISTEN):
                    found.add(Listener(name, "UDP" if udp else "TCP", line.laddr.ip))
    return found


def tree() -> list[psutil.Process]:
    """This process and all that came of it."""
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


@dataclass
class Seen:
    """What was ever listened on."""

    listeners: set[Listener] = field(default_factory=set)

    @property
    def outside(self) -> list[Listener]:
        """Those that another machine could reach."""
        return sorted(one for one in self.listeners if one.outside)


@contextlib.contextmanager
def watched(mark: str, *, name: str = MARK) -> Iterator[Seen]:
    """All listeners of processes with this mark in variable `name`, for the length of a block."""
    seen, over = Seen(), threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            seen.listeners |= listeners(marked(mark, name=name))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
