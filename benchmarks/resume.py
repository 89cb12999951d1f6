"""Kill -9 at random moments: what a run loses.

    python -m benchmarks.resume [--kills 5] [--trials 150] [--seed 0] [--json]

One run is started again and again; each time its process is killed after a random while, the
last time it may finish. Every trial must have exactly one record, and none stored before a kill
may be missing after it.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import about
from benchmarks.throughput import EXAMPLE
from tuner.errors import TunerError
from tuner.record import TrialKey
from tuner.storage.sqlite_store import SqliteStore

_SETTLE_S = 4.0


def measure(kills: int, trials: int, seed: int, run: Path) -> dict[str, Any]:
    """Kill, continue, and count."""
    rng = random.Random(seed)
    command = [sys.executable, "-m", "tuner", "tune", f"{EXAMPLE}:gemm", "--target", "llvm"]
    command += ["--arg=m=128", "--arg=n=128", "--arg=k=128", "--until=0", "--run", str(run)]
    missing, taken_over_s, before = 0, [], set[TrialKey]()
    for _ in range(kills):
        started_s = time.time()
        process = subprocess.Popen(
            [*command, "--trials", "100000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for_records(run, len(before) + 1, deadline_s=90.0)
        taken_over_s.append(time.time() - started_s)
        time.sleep(rng.uniform(0.0, 8.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = _settled_keys(run)
        missing += len(before - set(after))
        before = set(after)
    total = max(trials, len(before) + 10)
    done = subprocess.run(
        [*command, "--trials", str(total), "--json"], check=True, capture_output=True
    )
    keys = _keys(run)
    return {
        "kills": kills,
        "records": len(keys),
        "twice": len(keys) - len(set(keys)),
        "missing": missing + len(before - set(keys)),
        "ended": json.loads(done.stdout)["ended"],
        "seconds_from_start_to_first_new_record": [round(s, 1) for s in taken_over_s],
    }


def _wait_for_records(run: Path, count: int, *, deadline_s: float) -> None:
    until_s = time.monotonic() + deadline_s
    while len(_keys(run)) < count:
        if time.monotonic() > until_s:
            raise SystemExit(f"the run did not go on within {deadline_s:g} s")
        time.sleep(0.3)


def _settled_keys(run: Path) -> list[TrialKey]:
    """What is stored once the workers of a killed run are gone too: they follow in seconds."""
    keys = _keys(run)
    while True:
        time.sleep(_SETTLE_S)
        more = _keys(run)
        if len(more) == len(keys):
            return more
        keys = more


def _keys(run: Path) -> list[TrialKey]:
    if not (run / "records.sqlite").exists():
        return []
    try:
        store = SqliteStore(run / "records.sqlite", read_only=True)
    except TunerError:
        return []  # it is just being made
    keys = [record.trial.key for record in store.scan()]
    store.close()
    return keys


def main() -> None:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description="Kill -9 at random moments.")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.kills, options.trials, options.seed, Path(folder) / "run")
    if options.json:
        print(json.dumps({**result, "machine": about()}))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
