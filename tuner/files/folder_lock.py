"""Locks on folders, which the kernel drops when their holder dies, however it dies.

The lock is on the folder itself (`flock`), so there is no file that could be left behind, and
several processes may share it: a library that locks files (filelock) offers neither.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import TunerError

_RETRY_S = 0.02


def try_lock(folder: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds a folder's lock until it is closed; None where it cannot be taken.

    Args:
        folder: the folder; a link is not followed.
        shared: take the lock together with others, where nobody holds it alone.
    """
    with suppress(OSError):
        return _take(folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    return None


@contextmanager
def locked(
    folder: Path,
    *,
    wait_s: float = 60.0,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold a folder's lock alone for a moment.

    Args:
        folder: made by the caller.
        wait_s: time to wait for others, who hold it for moments too.

    Raises:
        TunerError: it was not free in that time, or the folder cannot be locked.
    """
    until_s = monotonic() + wait_s
    try:
        while (descriptor := _take(folder, fcntl.LOCK_EX)) is None:
            if monotonic() >= until_s:
                raise TunerError(f"{folder} is locked by another process: end it, or wait")
            sleep(_RETRY_S)
    except OSError as error:
        raise TunerError(f"cannot lock {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(descriptor)


def _take(folder: Path, how: int) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        # A folder that was removed before it was locked does not count.
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
