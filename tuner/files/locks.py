"""The kernel's locks on open files and on folders (`flock`), which it drops when their holder dies,
however it dies.

Not with filelock: its locks cannot be shared or signed, its release does not hold for children that
share the descriptor, and it locks no folders. A folder is locked itself, so that there is no file
that could be left behind.
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


def try_flock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file, if it can be had now. Raises OSError where it has none.

    Args:
        shared: take it together with others, where nobody holds it alone.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give the lock back, also for children that share the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def try_lock(folder: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds a folder's lock until it is closed; None where it cannot be taken.

    Args:
        folder: the folder; a link is not followed.
        shared: take the lock together with others, where nobody holds it alone.
    """
    with suppress(OSError):
        return _take(folder, shared=shared)
    return None


@contextmanager
def hold_lock(
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
        while (descriptor := _take(folder)) is None:
            if monotonic() >= until_s:
                raise TunerError(f"{folder} is locked by another process: end it, or wait")
            sleep(_RETRY_S)
    except OSError as error:
        raise TunerError(f"cannot lock {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(descriptor)


def _take(folder: Path, *, shared: bool = False) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # A folder that was removed before it was locked does not count.
        if try_flock(descriptor, shared=shared) and os.path.samestat(
            os.fstat(descriptor), os.lstat(folder)
        ):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
