"""An object store in memory, which tests watch and break."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class MemoryObjectStore:
    """An `ObjectStore` that forgets everything with its process, for tests."""

    name = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.create`."""
        with self._lock:
            if path in self.objects:
                return False
            self.objects[path] = data
            return True

    def replace(self, path: str, data: bytes) -> None:
        """See `ObjectStore.replace`."""
        with self._lock:
            self.objects[path] = data

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """See `ObjectStore.read`."""
        with self._lock:
            return {path: self.objects[path] for path in paths if path in self.objects}

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore.list`."""
        with self._lock:
            return sorted(path for path in self.objects if path.startswith(prefix))

    def remove(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.remove`."""
        with self._lock:
            if self.objects.get(path) != data:
                return False
            del self.objects[path]
            return True
