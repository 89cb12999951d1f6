"""Processes that stock TVM starts import it without PyTorch, as ours do: in a third of the time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lean import LEAN


@pytest.fixture(scope="module", autouse=True)
def lean_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(LEAN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield
