"""Submit a tuning run to a Ray cluster, follow its log and say how it ended.

    export RAY_AUTH_MODE=token
    python examples/submit_job.py model.onnx --target cuda --run /runs/run1

What follows the options of this program goes to `tuner tune` as it stands. The model and whatever
else the run reads must be in the working folder, which is uploaded, or on the head.

Exits with 0 if the run was finished, with its own code if it failed, and with 3 if it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from pathlib import Path

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

STOP_WAIT_S = 120.0
"""What a run that is stopped gets to end in order: finish what is measured, export, tell MLflow."""
STOPPED = 3


class Log:
    """A job's log on standard output, each line of it once."""

    def __init__(self, client: JobSubmissionClient, job: str) -> None:
        self._client, self._job = client, job
        self._shown = 0

    async def follow(self, timeout_s: float) -> JobDetails | None:
        """Show what is new until the job has ended; None if it has not in `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._client.get_job_status(self._job).is_terminal():
                    await self._show()
                    await asyncio.sleep(1.0)
                await self._show()
        except TimeoutError:
            return None
        return self._client.get_job_info(self._job)

    async def _show(self) -> None:
        """Show the log until the line to the head is closed; a new one begins at the beginning."""
        at = 0
        async for text in self._client.tail_job_logs(self._job):
            new = text[max(0, self._shown - at) :]
            at += len(text)
            self._shown = max(self._shown, at)
            print(new, end="", flush=True)


def main() -> int:
    """Submit what the command line says, and see it through."""
    arguments, tune = parse(sys.argv[1:])
    try:
        client = JobSubmissionClient(arguments.address)
    except (ConnectionError, AuthenticationError) as error:
        print(f"{arguments.address} takes no jobs of ours: {error}", file=sys.stderr)
        return 1
    job = client.submit_job(
        entrypoint=shlex.join(["python", "-m", "tuner", "tune", *tune]),
        submission_id=arguments.id,
        runtime_env={
            "working_dir": str(arguments.working_dir),
            "excludes": [".git", ".venv", "runs"],
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": f"{STOP_WAIT_S:g}"},
        },
    )
    print(f"submitted {job} to {arguments.address}; Ctrl-C stops it", flush=True)
    return see_through(client, job, arguments.deadline_s)


def see_through(client: JobSubmissionClient, job: str, deadline_s: float) -> int:
    """Follow a job to its end; stop it where the user or the deadline says so."""
    log = Log(client, job)
    started_s = time.monotonic()
    try:
        ended = asyncio.run(log.follow(deadline_s))
    except KeyboardInterrupt:
        ended = None
    if ended is None:
        print(f"stopping {job} after {time.monotonic() - started_s:.0f} s", flush=True)
        client.stop_job(job)
        ended = asyncio.run(log.follow(STOP_WAIT_S + 30.0))
    if ended is None:
        print(f"{job} does not end; look at it with: ray job status {job}", file=sys.stderr)
        return 1
    reason = (ended.message or "").partition("\n")[0]  # the rest repeats the log
    print(f"{job}: {ended.status.value.lower()}: {reason}", flush=True)
    if ended.status is JobStatus.SUCCEEDED:
        return 0
    return STOPPED if ended.status is JobStatus.STOPPED else ended.driver_exit_code or 1


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and the words that are for `tuner tune`."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        usage="%(prog)s [options] MODEL [tune's options]",
        allow_abbrev=False,
    )
    # A forwarded port: the jobs' server of a cluster listens on its head's loopback.
    address = os.environ.get("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265")
    parser.add_argument("--server", dest="address", default=address, help=f"default: {address}")
    parser.add_argument("--id", help="of the job; made up by Ray if left out")
    parser.add_argument("--working-dir", type=Path, default=Path(), help="default: this folder")
    parser.add_argument("--deadline-s", type=float, default=86400.0, help="default: a day")
    arguments, tune = parser.parse_known_args(words)
    if not tune:
        parser.error("which model?")
    return arguments, tune


if __name__ == "__main__":
    sys.exit(main())
