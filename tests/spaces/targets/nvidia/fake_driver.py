"""A driver that is none: a library in C with its names, and the answers of a test's choice."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

H100 = {
    13: 1980000,
    16: 132,
    36: 2619000,
    37: 5120,
    38: 52428800,
    39: 2048,
    75: 9,
    76: 0,
    81: 233472,
    97: 232448,
}
"""Attributes of an H100 SXM, by their numbers in cuda.h."""
H100_PCIE = {**H100, 13: 1755000, 16: 114, 36: 1593000}
NO_DEVICE, NOT_INITIALIZED, OTHER = 100, 3, 999
"""Results of `cuInit` (CUDA Driver API, `CUresult`)."""

_SOURCE = """
#include <string.h>
int cuInit(unsigned flags) { return %(init)d; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < %(devices)d ? 0 : 101;
}
int cuDriverGetVersion(int *version) { *version = %(cuda)d; return 0; }
int cuGetErrorName(int error, const char **name) {
  *name = error == 100 ? "CUDA_ERROR_NO_DEVICE"
        : error == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR_OTHER";
  return 0;
}
int cuDeviceGetName(char *name, int size, int device) {
  strncpy(name, "%(name)s", size);
  return 0;
}
int cuDeviceGetPCIBusId(char *id, int size, int device) {
  strncpy(id, "0000:1B:00.0", size);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    %(cases)s
  }
  return 1;
}
"""


def fake_driver(
    folder: Path,
    attributes: Mapping[int, int],
    *,
    name: str = "NVIDIA H100 80GB HBM3",
    init: int = 0,
    devices: int = 1,
    cuda: int = 13000,
    more: Iterable[str] = (),
    soname: bool = False,
) -> str:
    """Compile one; return its path.

    Args:
        init: what `cuInit` answers.
        cuda: the newest CUDA version that it takes, in thousands and tens.
        more: names of functions that it has as well, and that fail.
        soname: have the loader take it for the driver wherever that is asked for later, in the
            same process; NVRTC asks for it, too, and needs a real one.
    """
    cases = " ".join(f"case {n}: *value = {v}; return 0;" for n, v in attributes.items())
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    answers = {"init": init, "devices": devices, "name": name, "cases": cases, "cuda": cuda}
    failing = "".join(f"int {each}(void) {{ return {OTHER}; }}\n" for each in more)
    source.write_text(_SOURCE % answers + failing)
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    command += ["-Wl,-soname,libcuda.so.1"] if soname else []
    subprocess.run(command, check=True, timeout=60)
    return str(library)
