"""Machines under suspicion are asked, and those that do not answer are avoided."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from cluster.ray_workers.nodes import Address, NodeWatch, reach

pytestmark = pytest.mark.ray


class World:
    """Machines by id, as Ray knows them, and which of them answer."""

    def __init__(self, *ids: str) -> None:
        self.known = list(ids)
        self.silent: set[int] = set()
        self.asked: list[set[int]] = []
        self.now_s = 0.0

    def alive(self) -> dict[str, Mapping[str, Any]]:
        """One port for each machine."""
        return {
            name: {
                "Resources": {"CPU": 4.0, "measure": 1.0},
                "NodeManagerAddress": "127.0.0.1",
                "NodeManagerPort": port,
            }
            for port, name in enumerate("abcdef")
            if name in self.known
        }

    def reach(self, addresses: Collection[Address]) -> set[Address]:
        self.asked.append({port for _, port in addresses})
        return {address for address in addresses if address[1] not in self.silent}


def watch_of(world: World) -> NodeWatch:
    return NodeWatch(world.reach, world.alive, clock=lambda: world.now_s, wall=lambda: 0.0)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.ray_workers import nodes

    monkeypatch.setattr(nodes, "_draining", dict)
    monkeypatch.setattr(nodes, "_grows", lambda: False)


def seen(watch: NodeWatch) -> list[str]:
    return [node.id for node in watch.look().nodes]


def test_who_is_not_suspected_is_not_asked() -> None:
    world = World("a", "b")
    assert seen(watch_of(world)) == ["a", "b"]
    assert world.asked == []


def test_a_suspect_that_answers_stays() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    watch.suspect("a")
    assert seen(watch) == ["a", "b"]
    assert watch.avoid() == {}
    assert world.asked == [{0}]


def test_a_suspect_that_does_not_answer_is_gone_at_once_and_avoided() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    world.silent = {0}
    watch.suspect("a")
    assert watch.avoid() == {"label_selector": {"ray.io/node-id": "!in(a)"}}
    assert seen(watch) == ["b"]


def test_one_that_answers_again_is_back() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    world.silent = {0}
    watch.suspect("a")
    assert seen(watch) == ["b"]
    world.silent = set()
    assert seen(watch) == ["b"]  # it is not asked all the time
    world.now_s = 10.0
    assert seen(watch) == ["a", "b"]
    assert watch.avoid() == {}


def test_one_that_ray_knows_to_be_gone_needs_no_avoiding() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    world.silent = {0}
    watch.suspect("a")
    assert seen(watch) == ["b"]
    world.known = ["b"]
    assert seen(watch) == ["b"]
    assert watch.avoid() == {}


def test_all_suspects_are_asked_at_once() -> None:
    """Each that is silent takes half a second."""
    world = World(*"abcdef")
    watch = watch_of(world)
    world.silent = {0, 1, 2, 3}
    for name in "abcde":
        watch.suspect(name)
    assert seen(watch) == ["e", "f"]
    assert world.asked == [{0, 1, 2, 3, 4}]


def test_one_that_was_silent_a_moment_ago_is_not_asked_for_each_worker_that_it_lost() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    world.silent = {0}
    for _ in range(3):
        watch.suspect("a")
        assert seen(watch) == ["b"]
    assert world.asked == [{0}]


def silent_server(stack: contextlib.ExitStack) -> Address:
    """An address that answers no more connections: nobody takes those that wait."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    address: Address = server.getsockname()
    for _ in range(8):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(address)
    return address


def test_machines_are_reached_where_somebody_listens() -> None:
    with contextlib.ExitStack() as stack:
        silent = [silent_server(stack) for _ in range(20)]
        good = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        listening = {server.getsockname() for server in good}
        with socket.create_server(("127.0.0.1", 0)) as closed:
            refusing = closed.getsockname()
        unknown = ("no-such-machine.invalid", 1)
        assert reach([*silent, *listening, refusing, unknown]) == listening


def test_who_has_no_socket_left_to_ask_with_suspects_nobody() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refusing = closed.getsockname()
    assert reach([refusing]) == set()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert reach([refusing]) == {refusing}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_with_unlike_devices_counts_without_them_and_gets_no_runner() -> None:
    world = World("a", "b")
    watch = watch_of(world)
    watch.unlike("a")
    unlike, like = watch.look().nodes
    assert unlike.resources == {"CPU": 4.0}
    assert like.resources == {"CPU": 4.0, "measure": 1.0}
    assert watch.avoid() == {}
    assert watch.avoid(unlike=True) == {"label_selector": {"ray.io/node-id": "!in(a)"}}
    world.known = ["b"]
    assert watch.avoid(unlike=True) == {}
