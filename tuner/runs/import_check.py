"""What came of comparing a run's model with its source: a file of the run folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tuner.errors import TunerError
from tuner.files.atomic import atomic_file
from tuner.runs.folder import RunFolder

State = Literal["passed", "differs", "skipped", "waived", "own"]
FAULT_FOLDER = "import_check"
"""Of a run: values of a difference, as `.npy` files."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a comparison may be.

    Attributes:
        seconds: of processor time, the search for a node at fault not counted.
        bytes_free: memory.
    """

    seconds: float
    bytes_free: int


@dataclass(frozen=True, slots=True)
class ImportCheck:
    """The outcome of a comparison.

    Attributes:
        state: `waived` is a user's `--no-import-check`, `own` is of a program, which is its own
            source.
        said: one line: what was compared, why it was not, or how the model differs.
        notes: what was left out, one line each.
        model_hash: of the run's model.
        key: of the model and of all that imports and compiles it.
        seconds: of processor time that it took.
    """

    state: State
    said: str
    notes: tuple[str, ...] = ()
    model_hash: str = ""
    key: str = ""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """For people."""
        head = {
            "passed": "the import is right",
            "differs": "the import is wrong",
            "skipped": "the import was not checked",
            "waived": "the import was not checked",
            "own": "nothing was imported",
        }
        return "; ".join([f"{head[self.state]}: {self.said}", *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"notes": list(self.notes)}


def write_check(path: Path, check: ImportCheck) -> None:
    """Write an outcome, in the place of an earlier one.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(path) as file:
        file.write(json.dumps(check.to_json(), indent=1) + "\n")


def read_check(path: Path) -> ImportCheck | None:
    """The outcome that a file holds; None where there is none that can be read."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return ImportCheck(**{**plain, "notes": tuple(plain["notes"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def refuse_wrong_import(run: RunFolder) -> None:
    """Refuse a run whose model was found to differ from its source.

    Raises:
        TunerError: it was.
    """
    check = read_check(run.import_check)
    if check is not None and check.state == "differs":
        raise TunerError(
            f"{check.line}; its kernels would compute that: go on with --no-import-check if it is "
            "wanted"
        )
