"""What a run is called and tagged with in MLflow, so that runs can be told apart and sorted."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

from cluster.search.job import SearchJob
from cluster.search.naming import device_name
from tuner.cost_models.pretrained import family
from tuner.layers import versions
from tuner.version import VERSION
from tuner.view.words import note_modelled

_GIT_S = 5.0
"""The most time for a question to git, whose folder may lie on a slow disk."""


def name_run(job: SearchJob) -> str:
    """The name of the run: its folder's; below a run on several devices, with that run's."""
    of_device = bool(job.device) and job.run.name == device_name(job.device)
    return f"{job.run.parent.name}/{job.run.name}" if of_device else job.run.name


def run_tags(job: SearchJob) -> dict[str, str]:
    """The tags that are known at the start; device and toolchain come with the first record.

    Those that begin with `mlflow.` are in columns of their own on MLflow's pages.
    """
    options = job.options
    revision = git_revision(Path(__file__).parents[2])
    tags = {
        "model": Path(options.model.source).name,
        "target": family(options.target),
        "strategy": versions(job.layers).get("strategy", str(options.strategy)),
        "effort": options.effort.name,
        "tuner_version": VERSION,
        "git_revision": revision,
        "mlflow.source.name": "tuner tune",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": revision.removesuffix("-dirty"),
        "mlflow.user": _user(),
        "times": note_modelled(options.target),
    }
    return {key: value for key, value in tags.items() if value}


def git_revision(checkout: Path) -> str:
    """The commit that the tuner runs from, with `-dirty` where files differ from it; empty where it
    was installed as a package."""
    if not (checkout / ".git").exists():
        return ""
    # Without optional locks, so that it writes nothing into the checkout.
    command = ["git", "--no-optional-locks", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(
            [*command, "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user, as in some containers
        return ""
