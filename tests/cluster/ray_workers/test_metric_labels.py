"""Ray takes labels of metrics in ASCII only, while names of folders and tasks have any letters."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("runs/a b%20-1", "runs/a b%20-1"),
        ("läufe/größe", "l%C3%A4ufe/gr%C3%B6%C3%9Fe"),
        ("実行", "%E5%AE%9F%E8%A1%8C"),
        ("caf\udce9", "caf%E9"),  # a name of a file that is no UTF-8
    ],
)
def test_letters_beyond_ascii_are_shown_by_their_bytes(name: str, shown: str) -> None:
    from cluster.ray_workers.metrics import label

    assert label(name) == shown
