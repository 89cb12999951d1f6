"""A Ray head without the services that a cluster of one process has no use for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def lean_head() -> Iterator[None]:
    """Within it `ray.init` starts no dashboard, no autoscaler's monitor and no log monitor, and the
    dashboard's agent serves nobody.

    Ray 2.60 starts a dashboard process even where it is told not to include one, and waits until
    it is up: half of the time that a cluster of this machine takes to start, and most of the time
    that it takes to end. There is no public way to leave it out. A Ray without the methods that are
    replaced here starts as it always does.
    """
    from ray._private import utils
    from ray._private.node import Node

    changed: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (Node, "start_api_server", _no_api_server),
        (Node, "start_monitor", _nothing),
        (Node, "start_log_monitor", _nothing),
        (utils, "get_dashboard_dependency_error", _lacks_packages),
    )
    known = [row for row in changed if hasattr(*row[:2])]
    usual = [(owner, name, getattr(owner, name)) for owner, name, _ in known]
    for row in known:
        setattr(*row)
    try:
        yield
    finally:
        for row in usual:
            setattr(*row)


def _no_api_server(node: Any, **_: Any) -> None:
    node._webui_url = ""


def _lacks_packages() -> Exception:
    """What Ray says where the packages of its dashboard are not installed: its agent is then the
    small one, which imports no server."""
    return ImportError("an embedded cluster has no dashboard")


def _nothing(node: Any) -> None:
    """Start nothing."""
