"""`tuner verify DIR`: whether the winners of a run are what its records say."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import FILE_TEXT, TASK, Parsed, debug_flag, json_flag, run_argument
from cluster.app.console.layer_flags import CLASS, library_flag
from cluster.app.console.output import nothing_on_stdout, print_json, print_table
from tuner import checks
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.report.trust.verify import Judged, Verification

_SEEDS = 1 << 31


@click.command(short_help="Whether the winners are what the records say.")
@run_argument
@click.option("--task", metavar="NAME", type=TASK, help="Only the task of this name or key.")
@click.option(
    "--repeat",
    "turns",
    metavar="N",
    default=3,
    show_default=True,
    type=Parsed("number", checks.positive),
    help="Times that each winner is timed, in turns; as often again where it seems to differ.",
)
@click.option(
    "--seed",
    metavar="N",
    type=Parsed("number", checks.seed),
    help="Of the inputs. Default: another each time; none has the inputs of the search.",
)
@click.option(
    "--anyway",
    is_flag=True,
    help="Judge times also on another device, or with another toolchain or layers.",
)
@click.option("--builder", metavar=CLASS, type=FILE_TEXT, help="The builder it was tuned with.")
@click.option("--runner", metavar=CLASS, type=FILE_TEXT, help="The runner it was tuned with.")
@library_flag
@json_flag
@debug_flag
def verify(
    run: RunLocation,
    task: str | None,
    turns: int,
    seed: int | None,
    anyway: bool,
    builder: str | None,
    runner: str | None,
    libraries: tuple[str, ...],
    as_json: bool,
) -> int:
    """Rebuild the winners of DIR from their records, check their outputs on inputs that the search
    did not have, and time them again beside the default schedules. Exit 1 if one differs."""
    from cluster.app.driver.trust.verify import Wanted
    from cluster.app.driver.trust.verify import verify as verified

    seed = time.time_ns() % _SEEDS if seed is None else seed
    named = [("builder", builder), ("runner", runner), *(("libraries", one) for one in libraries)]
    layers = tuple((name, text) for name, text in named if text is not None)
    wanted = Wanted(task, turns, seed, anyway, layers)
    with nothing_on_stdout(as_json), open_run(run) as (manifest, store):
        found = verified(manifest, store, run, wanted, _step)
    _step("")
    if as_json:
        print_json({"run": str(run), "seed": seed, **found.to_json()})
    else:
        _print(found, seed)
    return 0 if found.ok else 1


def _step(what: str) -> None:
    """Show on a terminal what is being done, on one line."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{what}", nl=False, err=True)


def _print(found: Verification, seed: int) -> None:
    from cluster.app.console.terminal import latency, ratio
    from tuner.report.trust.verify import Verdict
    from tuner.view.words import amount

    rows = [
        (
            _named(winner),
            latency(winner.claim.latency_s),
            latency(winner.seen.latency_s),
            "-" if winner.ratio is None else f"{winner.ratio:.2f}x",
            ratio(_gain(winner.claim.default_s, winner.claim.latency_s)),
            ratio(_gain(winner.seen.by_default_s, winner.seen.latency_s)),
            str(winner.verdict),
        )
        for winner in found.winners
    ]
    heads = ("task", "recorded", "now", "of it", "gain recorded", "gain now", "verdict")
    print_table(*heads, rows=rows)
    for winner in found.winners:
        for why in winner.why:
            click.echo(f"{_named(winner)}: {why}")
    for note in found.unsure:
        click.echo(f"times are not judged: {note}")
    kernels = amount(found.kernels, "kernel")
    if found.other_machine:
        together = f"all {kernels} together take" if found.kernels != 1 else "the kernel takes"
        click.echo(
            f"{together} {found.machine:.2f}x of their records' times: the machine is in "
            "another state than when they were recorded, or all of the records were changed"
        )
    elif found.machine is not None:
        click.echo(
            f"the median over {kernels} is {found.machine:.2f}x of their records' "
            "times, which is put down to the machine"
        )
    if found.noisy is not None:
        click.echo(
            f"times of one kernel are up to {found.noisy:.2f}x apart from turn to turn: nothing "
            "less is judged; try again when the machine is quiet"
        )
    counts = [(sum(w.verdict is kind for w in found.winners), kind) for kind in Verdict]
    said = ", ".join(f"{count} {kind}" for count, kind in counts if count)
    click.echo(f"{amount(len(found.winners), 'winner')}: {said} (inputs of --seed {seed})")


def _named(winner: Judged) -> str:
    from tuner.dynamic.shapes import shape_text

    name, instance = winner.claim.task.name, winner.claim.record.trial.instance
    return f"{name} ({shape_text(instance)})" if instance else name


def _gain(default_s: float | None, latency_s: float | None) -> float | None:
    return default_s / latency_s if default_s and latency_s else None
