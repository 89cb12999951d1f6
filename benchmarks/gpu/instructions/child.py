"""Runs programs on the device, one by one, for `benchmarks.gpu.instructions`.

    python -m benchmarks.gpu.instructions.child CUBINS OUTPUTS

Says what the device is, then reads names of programs and answers each with a line of JSON; the
outputs are in the file that it names. Ends after an error, since the device takes no more from this
process then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.instructions.compile import read_index
from benchmarks.gpu.instructions.driver import Driver, DriverError
from benchmarks.gpu.instructions.questions.catalogue import questions
from tests.spaces.emulation.instructions.catalogue import programs


def main() -> None:
    """Answer until there is nothing more to read."""
    cubins, outputs = Path(sys.argv[1]), Path(sys.argv[2])
    known = {**programs(), **{name: asked.program for name, asked in questions().items()}}
    try:
        driver = Driver()
        say(driver.about())
    except DriverError as error:
        say({"error": str(error)})
        return
    files: Mapping[str, Path] = {}
    for line in sys.stdin:
        program = known[line.strip()]
        inputs = program.inputs()
        files = files or read_index(cubins).cubins  # which is there when the first name comes
        try:
            after = driver.run(
                files[program.name],
                program.kernel,
                grid=program.grid,
                block=program.block,
                shared_bytes=program.shared_bytes,
                buffers=[*inputs, *program.outputs()],
                tensor_maps=program.tensor_maps,
            )
        except DriverError as error:
            say({"error": str(error)})
            return
        file = outputs / f"{program.kernel}.npz"
        np.savez(file, *after[len(inputs) :])
        say({"file": str(file)})


def say(answer: dict[str, Any]) -> None:
    """One line on standard output."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
