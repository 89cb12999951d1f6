"""The fleet, measured: `python -m benchmarks.fleet chaos|grow|join|scale|share|slots --json`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from benchmarks.fleet import chaos, grow, join, scale, share, slots
from benchmarks.machine import about
from tuner.errors import TunerError
from tuner.files.atomic import atomic_file

SCENARIOS = {
    "chaos": chaos,
    "grow": grow,
    "join": join,
    "slots": slots,
    "share": share,
    "scale": scale,
}


def main() -> None:
    """Run one scenario and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    scenarios = parser.add_subparsers(dest="scenario", required=True)
    for name, scenario in SCENARIOS.items():
        one = scenarios.add_parser(name, description=scenario.__doc__)
        scenario.flags(one)
        one.add_argument("--out", type=Path, help="file for the JSON")
        one.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray says things there
            result = {**SCENARIOS[options.scenario].measure(options), "machine": about()}
    except TunerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if options.out is not None:
        with atomic_file(options.out) as file:
            file.write(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))
    sys.exit(0 if result["passed"] else 1)


if __name__ == "__main__":
    main()
