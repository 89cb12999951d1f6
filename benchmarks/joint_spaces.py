"""What a bad space costs a search that is given it beside what is known.

    python -m benchmarks.joint_spaces --trials 64 --json
    python -m benchmarks.joint_spaces --trials 64 --out benchmarks/results/spaces/joint.json

Each program is tuned twice with equal trials, in turning order: as ever, and with the space of
`benchmarks/bad_space.py` added to it. `race`: both winners in one process, in turns; `ratio` is the
latency with the bad space over that without. `spaces` says how often each space was tried.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, fresh, run_main, settings_of, workplace
from benchmarks.figures import summed_up
from benchmarks.our_side import OurRun, race_of_winner
from benchmarks.race import Ours
from benchmarks.suites import Workload, suite
from tuner import checks
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.view.as_json import space_json
from tuner.view.spaces import view_spaces

_BAD = Path(__file__).with_name("bad_space.py")
_PROGRAMS = (0, 1, 4, 7, 9)
"""Places in the suite `geomean`: a product, a dense layer, two convolutions, a softmax."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on each program."""
    chosen = tuple(suite("geomean")[place] for place in _PROGRAMS)
    target, cores = cores_of(options.target)
    settings = settings_of(options, target, cores)
    rows = Rows(options.out, settings)
    for number, workload in rows.missing(chosen):
        with workplace(options.keep) as folder:
            place = fresh(folder, workload.name)
            place.mkdir()
            rows.add(_compare(workload, place, options, settings, bad_first=number % 2 == 1))
    return rows.finish({"race": summed_up([row["race"]["ratio"] for row in rows.rows])})


def _compare(
    workload: Workload,
    place: Path,
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    *,
    bad_first: bool,
) -> dict[str, Any]:
    def tuned(name: str, *more: str) -> OurRun:
        return our_side.tune(
            [*workload.command_line(), *more],
            place / name,
            limit_s=checks.duration_s(options.limit),
            trials=options.trials,
            target=str(settings["target"]),
            seed=options.seed,
        )

    runs: dict[str, OurRun] = {}
    for name in ("bad", "alone") if bad_first else ("alone", "bad"):
        runs[name] = tuned(name, *(["--space", str(_BAD)] if name == "bad" else []))
    against = []
    if (winner := runs["bad"].winner) is not None:
        against = [Ours(winner.task, winner.record.trial.candidate, "bad")]
    race = race_of_winner(
        runs["alone"], against, cores=int(settings["cores"]), rounds=options.rounds
    )
    return {
        **workload.to_json(),
        "alone": our_side.facts(runs["alone"]),
        "bad": our_side.facts(runs["bad"]),
        "spaces": _spaces(runs["bad"]),
        "race": race.told("bad", "ours"),
    }


def _spaces(run: OurRun) -> list[dict[str, Any]]:
    with closing(SqliteStore(RunFolder(run.folder).store, read_only=True)) as store:
        return [space_json(space) for space in view_spaces(store, store.tasks())]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joint_spaces")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="folder for the runs; else they are removed")
    common_flags(parser, limit="10m")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
