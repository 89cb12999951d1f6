"""What a power cut would leave of a folder, at each moment while real code writes to it.

Nothing is cut: calls of the system are followed. The data of a file are on the disk once it was
synced; its name, and a folder's, may get there at once (which is why a name must not come before
the data) or only with the sync of the folder that it is in (which is why that must come at last).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Left = dict[str, bytes | None]
"""Content by name; None for a file that is there, but empty or torn."""


class Disk:
    """Follows what is written below `root` from now on.

    Attributes:
        moments: what would be left if names were quick, after each change of a name or a sync.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._data: dict[int, bytes] = {}
        self._names: dict[int, set[str]] = {}
        self.moments: list[Left] = []
        for file in root.rglob("*"):  # what is there already is there for good
            self._synced(file)
        self._synced(root)
        patch.setattr(os, "fsync", self._followed(os.fsync, self._on_sync))
        for name in ("rename", "replace", "link", "unlink", "rmdir"):
            patch.setattr(os, name, self._followed(getattr(os, name)))

    def left(self) -> Left:
        """What is left now, if only those names are there that were synced."""
        return {name: data for name, data in self._now().items() if self._is_named(name)}

    def _now(self) -> Left:
        files = (path for path in self._root.rglob("*") if path.is_file())
        return {
            path.relative_to(self._root).as_posix(): self._data.get(path.stat().st_ino)
            for path in files
        }

    def _is_named(self, name: str) -> bool:
        path = self._root / name
        below = [path, *path.parents][: len(Path(name).parts)]
        return all(p.name in self._names.get(p.parent.stat().st_ino, ()) for p in below)

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names[path.stat().st_ino] = set(os.listdir(path))
        else:
            self._data[path.stat().st_ino] = path.read_bytes()

    def _on_sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.exists() and path.is_relative_to(self._root):
            self._synced(path)

    def _forget_what_is_gone(self) -> None:
        """Before another file gets its number."""
        there = {path.stat().st_ino for path in (self._root, *self._root.rglob("*"))}
        self._data = {number: data for number, data in self._data.items() if number in there}
        self._names = {number: names for number, names in self._names.items() if number in there}

    def _followed(self, call: Any, note: Callable[..., None] = lambda *_, **__: None) -> Any:
        def followed(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            note(*arguments, **options)
            self._forget_what_is_gone()
            self.moments.append(self._now())
            return result

        return followed
