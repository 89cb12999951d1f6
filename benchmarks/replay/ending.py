"""Where runs of recorded tasks end by themselves, and what twice as many trials would have brought.

    python -m benchmarks.replay.ending --json [--recordings DIR] [--noise NAME] [--until 0.03]
        [--tasks N] [--seeds 20]

Each seed draws some of the recorded tasks and their shares of a network's time. The network is
tuned until it ends by itself, and again with twice the trials of that and no other end. Printed are
the trials, what was predicted of the second half (`tuner.session.ending.doubling`), and what came:
how much less the chosen kernels take, by true times.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay.command import load_recordings
from benchmarks.replay.network import totals, weights_of
from benchmarks.replay.policies import RECORDINGS, WarmStart, policy_of, search
from tuner.replay.noise import NOISES
from tuner.replay.recording import Recording

_MOST = 4096
"""Trials of a run that does not end."""


def look(recordings: Sequence[Recording], seed: int, noise: str, until: float) -> dict[str, Any]:
    """One network: the trials by its end, and what came of as many more."""
    weights = weights_of(recordings, seed)
    policy, warm_start = policy_of("process"), WarmStart({})

    def tune(trials: int, until: float) -> tuple[int, float, float | None]:
        snapshots: list[float | None] = []
        store = search(
            recordings,
            policy,
            warm_start,
            trials=trials,
            seed=seed,
            noise=NOISES[noise],
            weights=weights,
            until=until,
            on_end=lambda snapshot: snapshots.append(snapshot.next_gain),
        )
        after, choice = totals(store, recordings, weights)
        return len(after), choice, snapshots[-1]

    trials, then, predicted = tune(_MOST, until)
    twice, later, _ = tune(2 * trials, 0.0)
    return {
        "tasks": [r.task.name for r in recordings],
        "trials": trials,
        "twice": twice,
        "over_the_least": then,
        "predicted": predicted,
        "came": 1.0 - later / then,
    }


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, default=RECORDINGS / "settings", metavar="DIR")
    parser.add_argument("--tasks", type=int, default=3, help="of each network")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", choices=NOISES, default="tailed")
    parser.add_argument("--until", type=float, default=0.03)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    recordings = load_recordings(parser, options.recordings)
    runs = []
    for seed in range(options.seeds):
        some = random.Random(f"tasks {seed}").sample(recordings, options.tasks)
        runs.append(look(some, seed, options.noise, options.until))
        if not options.json:
            row = runs[-1]
            print(
                *(
                    f"{k} {v if isinstance(v, int) else round(v or 0, 4)}"
                    for k, v in row.items()
                    if k != "tasks"
                ),
                flush=True,
            )
    report = {
        "noise": options.noise,
        "until": options.until,
        "runs": runs,
        "median_trials": statistics.median(row["trials"] for row in runs),
        "over_the_least": statistics.mean(row["over_the_least"] for row in runs),
        "more_than_5_percent_came": sum(row["came"] > 0.05 for row in runs) / len(runs),
    }
    print(json.dumps(report if options.json else {k: report[k] for k in list(report)[3:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
