"""The best schedule of each task of a run, for people and programs."""

from __future__ import annotations

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


def best_explained(store: RecordStore, task: str | None) -> list[dict[str, Any]]:
    """What to say of each static task that has a winner.

    Raises:
        TunerError: there is no such task.
    """
    from spaces.deploy.explain import explain
    from tuner.report.report import best_report
    from tuner.report.winners import choose_best

    known = {t.name: t for t in store.tasks()}
    rows = []
    for best in best_report(store, task)["tasks"]:
        found = known[best["name"]]
        winner = None if found.shapes else choose_best(store, found.key)
        if winner is None:
            continue
        said = explain(found, winner.trial.candidate)
        if said is not None:
            names = ("name", "weight", "default_ms", "latency_ms", "gflops", "space")
            rows.append({**{name: best[name] for name in names}, **said.to_json()})  # type: ignore[literal-required]
    return rows
