"""The comparison of a run's model with its source, beside the first builds.

It is a process of its own on the search's machine. Its outcome is kept in the run, a good one
for all runs of a user on this machine, by the hash of the model and of what imports it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Unfinished
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import psutil

from actors.quiet_lock import Quiet
from tuner.errors import describe_error
from tuner.files.own_folder import make_own, own_folder
from tuner.process.child import Child
from tuner.process.outcome import Outcome, Returned
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder
from tuner.runs.import_check import ImportCheck, Limits, read_check, write_check
from tuner.runs.remote import put_check

_log = logging.getLogger(__name__)

_CHILD = "spaces.import_check.check:ImportCheckChild"
_READY_S = 120.0
_SHARE = 0.1
"""The share of a run's time that it may take."""
_LEAST_S, MOST_S = 5.0, 60.0
"""Between these."""
_PATIENCE = 4.0
"""The wall time that it may take, for each second of processor time."""
_EXPLAIN_S = 150.0
"""The wall time beyond that, to find the node at fault."""
_PACKAGES = ("apache-tvm", "onnx", "onnxruntime", "torch")
_SOURCES = ("frontends", "import_check", "lowering", "ir")
"""Rooms of `spaces` that an import goes through."""


class ImportChecking:
    """The comparison, under way on a thread of its own.

    Args:
        on_difference: called on that thread once the model was found to differ.
    """

    def __init__(
        self,
        options: TuneOptions,
        location: RunLocation,
        run: RunFolder,
        quiet: Quiet | None,
        on_difference: Callable[[], None],
    ) -> None:
        self._threads = ThreadPoolExecutor(1, "import-check")
        self._check: Future[ImportCheck] = self._threads.submit(
            _check_or_say_why, options, location, run, quiet
        )
        self._check.add_done_callback(
            lambda check: on_difference() if check.result().state == "differs" else None
        )

    def outcome(self, patience_s: float) -> ImportCheck | None:
        """What came of it; None where that takes longer than one waits."""
        try:
            return self._check.result(patience_s)
        except Unfinished:
            return None

    def close(self) -> None:
        """Do not wait for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def check_run(
    options: TuneOptions, location: RunLocation, run: RunFolder, quiet: Quiet | None
) -> ImportCheck:
    """Compare the model of a run with its source, unless that was done, and keep what came of it.

    Args:
        location: of the run, and `run` its folder on this machine.
        quiet: freezes the process while kernels are timed; None does not.
    """
    manifest = run.read_manifest()
    if not options.import_check:
        waived = ImportCheck("waived", "--no-import-check", (), manifest.model_hash)
        return _keep(location, run, waived)
    key = _key(manifest.model_hash)
    kept = make_own(own_folder() / "import-checks") / f"{key}.json"
    known = read_check(run.import_check)
    if known is not None and known.state in ("passed", "differs") and known.key == key:
        return known
    if (known := read_check(kept)) is not None:
        return _keep(location, run, known)
    limit_s = check_limit_s(options)
    check = compare_copy(
        run.model_dir, manifest.model_hash, options.target, limit_s=limit_s, run=run, quiet=quiet
    )
    check = replace(check, key=key)
    if check.state == "passed":
        write_check(kept, check)
    return _keep(location, run, check)


def check_limit_s(options: TuneOptions) -> float:
    """The seconds that a run has for its check."""
    return min(MOST_S, max(_LEAST_S, _SHARE * options.limit_s))


def _check_or_say_why(
    options: TuneOptions, location: RunLocation, run: RunFolder, quiet: Quiet | None
) -> ImportCheck:
    try:
        return check_run(options, location, run, quiet)
    except Exception as error:  # the border of the thread: a full disk is no fault of the model
        _log.exception("the check of the import")
        return ImportCheck("skipped", describe_error(error))


def _keep(location: RunLocation, run: RunFolder, check: ImportCheck) -> ImportCheck:
    write_check(run.import_check, check)
    put_check(location, run)
    return check


def compare_copy(
    model_dir: Path,
    model_hash: str,
    target: str,
    *,
    limit_s: float = MOST_S,
    run: RunFolder | None = None,
    quiet: Quiet | None = None,
) -> ImportCheck:
    """Compare a copy of a model with its source, in a process of its own.

    Args:
        model_dir: the copy, as a run keeps it.
        target: canonical JSON.
        limit_s: of processor time.
        run: where values of a difference are kept.
    """
    limits = Limits(limit_s, psutil.virtual_memory().available)
    folder = None if run is None else run.root
    log = None if run is None else run.logs / "import_check.log"
    with Child(_CHILD, env={"CUDA_VISIBLE_DEVICES": ""}, log=log) as child:
        frozen_s = None if quiet is None else quiet.watch()
        if quiet is not None:
            quiet.register(child.pid)
        outcome: Outcome = child.ready(_READY_S, frozen_s=frozen_s)
        if isinstance(outcome, Returned):
            outcome = child.call(
                "check",
                *(model_dir, model_hash, target, limits, folder),
                deadline_s=_PATIENCE * limit_s + _EXPLAIN_S,
                frozen_s=frozen_s,
            )
    if isinstance(outcome, Returned):
        check: ImportCheck = outcome.value
        return check
    return ImportCheck("skipped", f"the process that compares it was lost: {outcome}")


def _key(model_hash: str) -> str:
    """Of a model, and of everything that imports and compiles it."""
    versions = {name: _version(name) for name in _PACKAGES}
    digest = hashlib.sha256(json.dumps([model_hash, versions]).encode())
    spaces = Path(__file__).parents[2] / "spaces"
    for file in sorted(file for room in _SOURCES for file in (spaces / room).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
