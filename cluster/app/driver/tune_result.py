"""The result of `tuner tune` and `tuner.tune`: why the session ended, and the run's state then."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError
from tuner.run_location import RunLocation
from tuner.runs.folder import read_run
from tuner.runs.remote import local, working_folder
from tuner.view.progress import Snapshot, side_by_side

if TYPE_CHECKING:
    from cluster.search.job import SearchState


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The result of one session of tuning.

    Attributes:
        run: the run folder, or the URL of the run, which holds everything.
        snapshot: the run's progress when the session ended.
        parts: one result for each device, where the cluster has different devices; the other
            fields sum them up.
        ended: `trials`, `time`, `signal` or `done` (nothing left to try).
        warnings: lines for people; the result is complete all the same.
        mlflow_command: command that opens the experiment.
    """

    run: Path | str
    snapshot: Snapshot
    ended: str
    warnings: tuple[str, ...]
    mlflow_command: str
    parts: tuple[TuneResult, ...] = ()

    @property
    def best(self) -> list[dict[str, Any]]:
        """The best schedule of each task, as `tuner best --json` lists them.

        Raises:
            TunerError: there is a result for each of several devices, or nothing was measured.
        """
        from cluster.app.driver.best_schedules import best_schedules
        from tuner.storage.sqlite_store import SqliteStore

        folder, manifest = read_run(self._folder())
        with closing(SqliteStore(folder.store, read_only=True)) as store:
            found = best_schedules(store, None, manifest.max_kernels)
            return [schedule.to_json() for schedule in found]

    @property
    def spaces(self) -> list[dict[str, Any]]:
        """What came of each design space, as `tuner status --json` lists them.

        Raises:
            TunerError: there is a result for each of several devices.
        """
        from tuner.storage.sqlite_store import SqliteStore
        from tuner.view.as_json import space_json
        from tuner.view.spaces import view_spaces

        folder, _ = read_run(self._folder())
        with closing(SqliteStore(folder.store, read_only=True)) as store:
            return [space_json(space) for space in view_spaces(store, store.tasks())]

    def library(self, path: Path | str, *, allow_external: bool = False) -> Path:
        """Write a library of the model with its best schedules, which TVM loads; return its path.

        Args:
            allow_external: whether it may call functions that it does not hold.

        Raises:
            TunerError: as for `best`, or it cannot be written.
        """
        from cluster.app.driver.export import export_library

        export_library(self._folder(model=True), Path(path), allow_external=allow_external)
        return Path(path)

    def apply(self, module: Any = None) -> Any:
        """Lower a model and put the best schedules into it, see
        `cluster.app.driver.export.apply_to`.

        Raises:
            TunerError: as for `best`, or there is no schedule for any of its programs.
        """
        from cluster.app.driver.export import apply_to

        return apply_to(self._folder(model=True), module)

    def database(self, path: Path | str) -> list[str]:
        """Write the best schedules as a MetaSchedule database; return the tasks that it lacks.

        Raises:
            TunerError: as for `best`, or it cannot be written.
        """
        from cluster.app.driver.export import export_database

        left_out = export_database(self._folder(model=True), Path(path))
        return list(left_out.symbolic)

    def _folder(self, *, model: bool = False) -> Path:
        if self.parts:
            raise TunerError(
                "there is a result for each device: take one of result.parts, whose runs are "
                + ", ".join(str(part.run) for part in self.parts)
            )
        return local(RunLocation.of(self.run), model=model)


def together(run: RunLocation, results: Sequence[TuneResult], warning: str) -> TuneResult:
    """Merge the results for all devices; a single one stays as it is, with the warning added."""
    first = results[0]
    warnings = tuple(w for w in (warning, *(w for r in results for w in r.warnings)) if w)
    if len(results) == 1:
        return replace(first, warnings=warnings)
    snapshots = {RunLocation.of(result.run).name: result.snapshot for result in results}
    return TuneResult(
        run=run.named,
        snapshot=side_by_side(snapshots),
        ended=first.ended,
        warnings=warnings,
        mlflow_command=first.mlflow_command,
        parts=tuple(results),
    )


def result_of(run: RunLocation, state: SearchState, tracking_uri: str) -> TuneResult:
    """The result of a search from the last state that its actor reported.

    Raises:
        TunerError: the search failed.
    """
    from tuner.tracking.tracker import open_command

    if state.error or state.snapshot is None:
        error = TunerError(state.error or "the search ended before it began")
        error.add_note(state.trace)
        raise error
    return TuneResult(
        run=run.named,
        snapshot=state.snapshot,
        ended=state.ended,
        warnings=tuple(w for w in state.warnings if w),
        mlflow_command=open_command(working_folder(run).root, tracking_uri),
    )
