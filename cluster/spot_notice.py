"""Drains this node of Ray when the cloud announces that its spot machine will go.

    python -m cluster.spot_notice aws

Clouds announce it in a machine's metadata only, and Ray does not look there. This program does, for
as long as the node's raylet lives, and tells Ray: no new work is put here, and everybody can see
when the node will go. It is started on workers by the `ray up` files in `cluster/configs/`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import psutil

_POLL_S = 2.0
_REQUEST_S = 2.0
_RAYLET_START_S = 120.0
_DRAIN_S = 20.0
_GCP_NOTICE_S = 30.0
_AWS_TOKEN = "X-aws-ec2-metadata-token"


@dataclass(frozen=True, slots=True)
class Notice:
    """The announcement that this machine will go.

    Attributes:
        left_s: seconds until then; 0 if it is due.
        text: the cloud's own words.
    """

    left_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Raylet:
    """The raylet of this node, as its command line describes it."""

    process: psutil.Process
    node_id: str
    gcs_address: str

    def alive(self) -> bool:
        """Whether the raylet still runs."""
        try:
            return bool(self.process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


Fetch = Callable[[str, str, Mapping[str, str]], str | None]
"""Method, path and headers of a request to the metadata; None where there is no such entry."""

Ask = Callable[[Fetch, float], Notice | None]
"""Looks for a notice; the number is the time, in seconds since the epoch."""


def aws_notice(fetch: Fetch, now_s: float) -> Notice | None:
    """EC2's notice: about two minutes ahead, with the time at which the machine goes."""
    token = fetch("PUT", "/latest/api/token", {f"{_AWS_TOKEN}-ttl-seconds": "60"}) or ""
    text = fetch("GET", "/latest/meta-data/spot/instance-action", {_AWS_TOKEN: token})
    if text is None:
        return None
    try:
        at_s = datetime.fromisoformat(json.loads(text)["time"]).timestamp()
    except (ValueError, KeyError, TypeError):
        return Notice(0.0, text)  # even if unreadable, it is there only when the machine goes
    return Notice(max(0.0, at_s - now_s), text)


def gcp_notice(fetch: Fetch, now_s: float) -> Notice | None:
    """Compute Engine's notice: 30 seconds ahead, without a time."""
    path = "/computeMetadata/v1/instance/preempted"
    text = fetch("GET", path, {"Metadata-Flavor": "Google"})
    return Notice(_GCP_NOTICE_S, "preempted") if text == "TRUE" else None


CLOUDS: dict[str, tuple[str, Ask]] = {
    "aws": ("http://169.254.169.254", aws_notice),
    "gcp": ("http://metadata.google.internal", gcp_notice),
}


def fetcher(base: str, *, timeout_s: float = _REQUEST_S) -> Fetch:
    """A function that makes requests to the metadata at `base`, never through a proxy.

    That function raises `OSError` where nothing answers in time, or for an error other than 404.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def fetch(method: str, path: str, headers: Mapping[str, str]) -> str | None:
        request = urllib.request.Request(base + path, headers=dict(headers), method=method)
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return str(answer.read().decode()).strip()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise

    return fetch


def find_raylet(processes: Sequence[psutil.Process] | None = None) -> Raylet | None:
    """The raylet of this machine or container; None if none runs."""
    for process in psutil.process_iter() if processes is None else processes:
        with contextlib.suppress(psutil.Error):
            if process.name() != "raylet":
                continue
            words = [word[2:] for word in process.cmdline() if word.startswith("--")]
            flags = dict(word.split("=", 1) for word in words if "=" in word)
            if flags.keys() >= {"node_id", "gcs-address"}:
                return Raylet(process, flags["node_id"], flags["gcs-address"])
    return None


def drain(raylet: Raylet, notice: Notice) -> bool:
    """Tell Ray that this node will go. Return whether Ray accepted that."""
    words = [
        *(sys.executable, "-P", "-m", "ray.scripts.scripts", "drain-node"),
        *("--address", raylet.gcs_address, "--node-id", raylet.node_id),
        *("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", notice.text),
        *("--deadline-remaining-seconds", str(int(notice.left_s))),
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DRAIN_S)
    except subprocess.TimeoutExpired:
        _say(f"Ray did not answer within {_DRAIN_S:g} s")
        return False
    if done.returncode:
        _say((done.stderr.strip().splitlines() or ["Ray refused without a word"])[-1])
    return done.returncode == 0


def watch(
    ask: Callable[[], Notice | None],
    alive: Callable[[], bool],
    drained: Callable[[Notice], bool],
    *,
    sleep: Callable[[], None],
) -> bool:
    """Ask until there is a notice and Ray has accepted it, or the node's raylet is gone.

    Returns:
        Whether the node was drained.
    """
    silent = False
    while alive():
        try:
            notice = ask()
        except OSError as error:
            notice = None
            if not silent:
                _say(f"no metadata: {error}; trying again")
            silent = True
        else:
            silent = False
        if notice is not None:
            _say(f"this machine goes in {notice.left_s:.0f} s: {notice.text}")
            if drained(notice):
                return True
        sleep()
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch for as long as this machine's raylet lives. Return the exit code: 1 if none runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cloud", choices=sorted(CLOUDS))
    parser.add_argument("--metadata", help="where the metadata is, if not where the cloud has it")
    given = parser.parse_args(arguments)
    base, ask = CLOUDS[given.cloud]
    fetch = fetcher(given.metadata or base)
    deadline_s = time.monotonic() + _RAYLET_START_S
    while (raylet := find_raylet()) is None:
        if time.monotonic() >= deadline_s:
            _say(f"no Ray here within {_RAYLET_START_S:g} s")
            return 1
        time.sleep(_POLL_S)
    _say(f"watching over node {raylet.node_id}")
    found = raylet
    if watch(
        lambda: ask(fetch, time.time()),
        found.alive,
        lambda notice: drain(found, notice),
        sleep=lambda: time.sleep(_POLL_S),
    ):
        _say("the node is drained")
    return 0


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
