"""The kernels that others are compared with, kept for the next child.

A child that ends takes the outputs with it; the next one runs the kernel again.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


class JudgedKernels:
    """A folder of artifacts, one for each reference.

    Args:
        folder: may be emptied at any time, and shared by several children.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, seed: str, artifact: bytes) -> None:
        """Keep the artifact that was judged by the reference of this seed. A full disk costs the
        next child a kernel to compare with, and nothing else."""
        part = self._folder / f"{uuid.uuid4().hex}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(artifact)
            os.replace(part, self._place(seed))
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()

    def take(self, seed: str) -> bytes | None:
        """The artifact, which is kept no longer: should it end the child that runs it, the next one
        does not find it. None where there is none."""
        with contextlib.suppress(OSError):
            artifact = self._place(seed).read_bytes()
            self._place(seed).unlink()
            return artifact
        return None

    def _place(self, seed: str) -> Path:
        return self._folder / f"judged-{seed}"
