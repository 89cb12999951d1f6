"""A folder for temporary files that is this user's alone, on a machine that others may use too.

The system's temporary folder belongs to everybody: anything there under a name that can be guessed
may be another user's, such as a link to one of this user's files. So a folder is made for its owner
alone, and a folder that is there already is checked, without following a link.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tuner.errors import TunerError


def own_folder() -> Path:
    """The folder that all processes of this user share on this machine, made if it is missing.

    Raises:
        TunerError: the path is not a folder of this user alone.
    """
    return make_own(own_folder_path())


def own_folder_path() -> Path:
    """The path of `own_folder`, which is neither made nor checked."""
    # The user's number, since containers may run as a user without a name.
    return Path(tempfile.gettempdir()) / f"elastic-tuner-{os.geteuid()}"


def make_own(folder: Path) -> Path:
    """Make a folder that only this user may enter, or check that nobody else may write to it.

    Args:
        folder: the folder; missing parents are made too.

    Raises:
        TunerError: it cannot be made, or it is another user's, a link, or writable for others.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if why := _why_not(folder):
                raise TunerError(
                    f"{folder} {why}, so it is not used: remove it, or set TMPDIR to a folder of "
                    "your own"
                ) from None
    except OSError as error:
        raise TunerError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def _why_not(folder: Path) -> str:
    """Why a folder cannot be trusted; empty if it can."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is a link" if stat.S_ISLNK(found.st_mode) else "is not a folder"
    if found.st_uid != os.geteuid():
        return f"belongs to another user (number {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""
