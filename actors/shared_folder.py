"""A folder that several processes of a machine share, removed with the last of them.

Each holds a shared lock on the folder for as long as it lives, however it ends. A process that
leaves in order removes the folder if no other holds it; a folder left behind by killed processes is
removed by the next process that makes a folder beside it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from tuner.files.locks import try_lock
from tuner.files.own_folder import make_own

_TRIES = 50
_RETRY_S = 0.1


def sweep(folders: Iterable[Path]) -> None:
    """Remove the folders of this user that nobody holds."""
    for folder in folders:
        if (held := try_lock(folder)) is not None:
            try:
                if os.fstat(held).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


class SharedFolder:
    """Holds a folder, made if it is missing, together with other processes.

    Args:
        path: its parent must hold nothing but such folders; those that nobody holds are removed.

    Raises:
        TunerError: it cannot be made, or is not this user's alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None
        make_own(path.parent)
        sweep(folder for folder in path.parent.iterdir() if folder != path)
        for _ in range(_TRIES):
            make_own(path)
            self._held = try_lock(path, shared=True)
            if self._held is not None:
                return  # else somebody is just removing it, or the file system has no locks
            time.sleep(_RETRY_S)

    def leave(self) -> None:
        """Release the folder, and remove it if nobody else holds it. May be called twice."""
        if self._held is not None:
            held, self._held = self._held, None
            os.close(held)
            sweep([self.path])
