"""Put the blocks of a volume, which `benchmarks.gpu.kit.pack` made, where they belong.

    python3 .gpu/1/unpack.py /tmp/gpu

After all volumes, in any order, FOLDER/site is what PYTHONPATH names, and FOLDER/env.sh sets all
that TVM needs. Uses every core, and the standard library alone.
"""

from __future__ import annotations

import glob
import importlib.util
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Unpack the volume beside this file into the folder that is named."""
    started_s = time.monotonic()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/gpu")
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    index = json.loads((HERE / "index.json").read_text())
    blocks = index["blocks"]
    for block in blocks:
        if block["path"]:
            make_room(site / block["path"], block["size"], block["mode"])
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # lzma lets go of the interpreter
        for job in [pool.submit(put, site, block) for block in blocks]:
            job.result()
    write_environment(folder, site)
    done = folder / "done.txt"
    there = set(done.read_text().split()) if done.exists() else set()
    there |= {block["file"] for block in blocks}
    done.write_text("\n".join(sorted(there)))
    took_s = time.monotonic() - started_s
    print(f"unpacked {HERE.name} in {took_s:.1f} s: {len(there)} of {index['of']} blocks are there")


def make_room(path: Path, size: int, mode: int) -> None:
    """Make a file of a size, unless it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size != size:
        with path.open("wb") as file:
            file.truncate(size)
        path.chmod(mode)


def put(site: Path, block: dict[str, Any]) -> None:
    """Write a block to its place; xz checks its contents."""
    data = lzma.decompress((HERE / block["file"]).read_bytes())
    if not block["path"]:
        unpack_small(site, data)
        return
    with (site / block["path"]).open("r+b", buffering=0) as file:
        file.seek(block["at"])
        file.write(data)


def unpack_small(site: Path, data: bytes) -> None:
    """Unpack all small files, and compile those in Python: imports take seconds less."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = sorted({name.split("/")[0] for name in tar.getnames()})
        tar.extractall(site, filter="fully_trusted")
    packages = [str(site / name) for name in names if not name.endswith("-info")]
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0", *packages]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def write_environment(folder: Path, site: Path) -> None:
    """Write what a shell has to set before Python starts.

    TVM's CUDA runtime is linked with libcudart.so.13 and libcuda.so.1; where they are is told to
    the loader, since no package of `[cuda]` is installed there.
    """
    paths = [place for name in ("libcudart.so.13", "libcuda.so.1") for place in find(name)]
    lines = [
        f'export PYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}"',
        "export PYTHONUNBUFFERED=1",
    ]
    if paths:
        joined = ":".join(dict.fromkeys(paths))
        lines.append(f'export LD_LIBRARY_PATH="{joined}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    if Path("/usr/local/cuda/bin/nvcc").exists():
        lines.append("export CUDA_PATH=/usr/local/cuda CUDA_HOME=/usr/local/cuda")
        lines.append('export PATH="/usr/local/cuda/bin:$PATH"')
    (folder / "env.sh").write_text("\n".join([*lines, ""]))


def find(library: str) -> list[str]:
    """The first folder that has a library: of the toolkit, the driver, or a Python package."""
    places = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    places += ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu"]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        places += sorted(glob.glob(f"{root}/*/lib"))
    return [place for place in places if Path(place, library).exists()][:1]


if __name__ == "__main__":
    main()
