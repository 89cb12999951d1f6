"""The best schedule of each task of a run, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.storage.base import RecordStore


def best_with_traces(
    store: RecordStore, task: str | None, max_kernels: int
) -> list[dict[str, Any]]:
    """The rows of `tuner.report.report.best_report`, each with the winner's `trace` as Python text.

    Each has `kernel_set` too, see `cluster.driver.kernel_sets.described`: None for a static task,
    or where nothing was measured yet.

    Raises:
        TunerError: there is no such task.
    """
    from cluster.driver.kernel_sets import described, kernel_set
    from tuner.report.report import best_report
    from tuner.report.winners import choose_best

    known = {t.name: t for t in store.tasks()}
    sets = {
        t.key: chosen
        for t in known.values()
        if task in (None, t.name, t.key)
        and (chosen := kernel_set(store, t, max_kernels)) is not None
    }
    report = best_report(store, task, {key: chosen.latency_s for key, chosen in sets.items()})
    rows = []
    for row in report["tasks"]:
        found = known[row["name"]]
        winner = None if found.shapes else choose_best(store, found.key)
        trace = None
        if winner is not None:
            from spaces.design_space.realize import trace_text

            trace = trace_text(found, winner.trial.candidate)
        told = described(found, sets[found.key]) if found.key in sets else None
        rows.append({**row, "trace": trace, "kernel_set": told})
    return rows


@dataclass(frozen=True, slots=True)
class Explained:
    """What to say of the best schedules of a run.

    Attributes:
        rows: of each static task whose best schedule can be explained.
        symbolic: names of the tasks with symbolic dimensions.
        unmeasured: names of the static tasks of which no schedule has a time.
        without_loops: names of those whose best schedule has no block with loops.
    """

    rows: tuple[dict[str, Any], ...]
    symbolic: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    without_loops: tuple[str, ...] = ()


def best_explained(store: RecordStore, task: str | None) -> Explained:
    """What to say of the best schedule of each task, or of the task of that name or key.

    Raises:
        TunerError: there is no such task.
    """
    from tuner.report.report import best_report
    from tuner.report.winners import choose_best

    known = {t.name: t for t in store.tasks()}
    rows: list[dict[str, Any]] = []
    left_out: dict[str, list[str]] = {"symbolic": [], "unmeasured": [], "without_loops": []}
    for best in best_report(store, task)["tasks"]:
        found = known[best["name"]]
        winner = None if found.shapes else choose_best(store, found.key)
        if winner is None:
            left_out["symbolic" if found.shapes else "unmeasured"].append(found.name)
            continue
        from spaces.deploy.explain import explain

        said = explain(found, winner.trial.candidate)
        if said is None:
            left_out["without_loops"].append(found.name)
            continue
        names = ("name", "weight", "default_ms", "latency_ms", "gflops", "space")
        rows.append({**{name: best[name] for name in names}, **said.to_json()})  # type: ignore[literal-required]
    return Explained(tuple(rows), **{why: tuple(names) for why, names in left_out.items()})
