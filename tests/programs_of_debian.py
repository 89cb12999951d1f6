"""Programs that Debian brings: tests that need one are left out where it is missing, except where
nothing may be."""

from __future__ import annotations

import os
import shutil

import pytest

NOTHING_SKIPPED = "TUNER_TEST_NOTHING_SKIPPED"
"""Variable that makes a missing program a failure; `.ci/run` sets it, and installs them all."""


def needed(program: str) -> str:
    """The path of a program. Without it the calling test is skipped, or fails."""
    found = shutil.which(program)
    if found is not None:
        return found
    why = f"{program} is missing: apt-get install --no-install-recommends {program}"
    if os.environ.get(NOTHING_SKIPPED):
        pytest.fail(why)
    pytest.skip(why)
