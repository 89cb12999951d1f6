"""What is different in a job that was submitted to a cluster by `ray job submit`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import TunerError

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it in the environment of what was submitted."""


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether this process was started by a job of Ray's."""
    return _JOB in environ


def refuse_copied_folder(run: Path, environ: Mapping[str, str]) -> None:
    """Refuse a run inside Ray's copy of the folder that was submitted, which goes with the job.

    Args:
        run: folder of the run, which need not exist.

    Raises:
        TunerError: it is in there.
    """
    if not _has_copy(environ) or not run.resolve().is_relative_to(Path.cwd()):
        return
    raise TunerError(
        f"{run} would be in Ray's copy of the folder that was submitted, which goes away: name a "
        "folder that stays by its whole path, as --run /home/me/runs/run1, or a URL"
    )


def _has_copy(environ: Mapping[str, str]) -> bool:
    try:
        environment = json.loads(environ.get(_JOB, "{}")).get("runtime_env")
        return bool(environment and environment.get("working_dir"))
    except (ValueError, AttributeError):
        return False
