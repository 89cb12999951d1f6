"""What is known of a run so far, in a file that is written after each measurement, and in words."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.instructions.saved import KEPT
from tuner.files.atomic import write_bytes

_EMULATED = "emulated"


class Report:
    """What is known so far, on disk after each change."""

    def __init__(self, out: Path, machine: dict[str, Any]) -> None:
        self._out, self._started_s = out, time.monotonic()
        self.known: dict[str, Any] = {"machine": machine, "rows": {}}

    def add(self, workload: str, **facts: Any) -> None:
        """Add facts of a workload."""
        self.known["rows"].setdefault(workload, {}).update(facts)
        self._save()

    def note(self, **facts: Any) -> None:
        """Add facts of the whole run."""
        self.known.update(facts)
        self._save()

    def miss(self, what: str, why: str) -> None:
        """Add why something has no result, or not all of it; nothing where there is no reason."""
        if why:
            self.note(missing={**self.known.get("missing", {}), what: why})

    def _save(self) -> None:
        self.known["seconds"] = round(time.monotonic() - self._started_s, 1)
        write_bytes(self._out, (json.dumps(self.known, indent=1) + "\n").encode())


def file_for(machine: Mapping[str, Any], folder: Path = KEPT) -> Path:
    """A file that is not there yet, named by the device and the date."""
    words = [word for word in str(machine["device"]).split() if "=" not in word and word != "cuda"]
    name = re.sub(r"[^a-z0-9]+", "-", " ".join([*words, str(machine["date"])]).lower()).strip("-")
    path, number = folder / f"{name}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.json"
    return path


def mark_emulated(out: Path) -> Path:
    """The file for times of a model, which nobody should take for a device's."""
    return out if _EMULATED in out.stem else out.with_stem(f"{out.stem}-{_EMULATED}")


def tell(known: Mapping[str, Any]) -> None:
    """Print a line for each workload, and one for what else there is."""
    for name, row in known["rows"].items():
        _tell_row(name, row)
    for what in ("best", "sanitizer", "tests", "missing"):
        if what in known:
            print(f"{what}: {known[what]}", flush=True)


def _tell_row(name: str, row: Mapping[str, Any]) -> None:
    mine, torch, triton, theirs = (
        row.get(side, {}) for side in ("ours", "torch", "triton", "metaschedule")
    )
    best_us, torch_us = mine.get("best_us"), torch.get("torch_us")
    said = [f"ours {_us(best_us)} (predicted {_us(mine.get('predicted_us'))})"]
    said += [f"torch {_us(torch_us)}", f"triton {_us(triton.get('triton_us'))}"]
    if theirs:
        said.append(f"metaschedule {_us(theirs.get('best_us'))}")
    if best_us and torch_us:
        said.append(f"{torch_us / best_us:.2f} of torch's speed")
    if (ranks := mine.get("ranks_predicted")) is not None:
        said.append(f"ranks agree with those predicted by {ranks:.2f}")
    said.append(str(mine.get("ended", "")))
    where = "emulated, by a model: " if _EMULATED in row.get("device", "") else ""
    print(f"{name:32} {where}" + ", ".join(said), flush=True)
    if by_rows := mine.get("by_rows_us"):
        peers = torch.get("torch_by_rows_us") or "-"
        print(f"{'':32} us by rows: {by_rows}, torch {peers}", flush=True)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"
