"""Listeners are found wherever they are, and told apart by who reaches them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from tests.cluster.sockets import Listener, listeners


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture
def opened() -> Iterator[None]:
    """One of each kind, on loopback, and what is no listener beside them."""
    with ExitStack() as stack:
        if not has_ipv6():
            pytest.skip("this machine has no IPv6")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(tcp.getsockname()))
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            udp = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            udp.bind((host, 0))
        stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        yield


def test_all_kinds_are_found(opened: None) -> None:
    found = {(one.kind, one.host) for one in listeners([psutil.Process()])}
    assert found >= {("TCP", "127.0.0.1"), ("UDP", "127.0.0.1"), ("TCP", "::1"), ("UDP", "::1")}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "::ffff:10.0.0.7", "fe80::1"])
def test_others_reach_what_is_not_on_loopback(host: str) -> None:
    assert Listener("raylet", "TCP", host).outside


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_nobody_else_reaches_loopback(host: str) -> None:
    assert not Listener("raylet", "TCP", host).outside
