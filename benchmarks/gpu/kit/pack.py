"""Make what a GPU machine without network lacks small enough to travel.

    python -m benchmarks.gpu.kit.pack              # at the root of the repository: TVM, xgboost
    python -m benchmarks.gpu.kit.pack tvm ray more # and Ray, and what tracking and pages import
    python -m benchmarks.gpu.kit.pack --limit 64   # MiB of one transfer, the working tree included

The wheels are fetched with pip, for Python 3.12 on x86-64, in the versions that pyproject.toml asks
for. What nothing reads at run time is left out, large shared objects are cut into blocks, and each
block is compressed by itself (xz), so that the other side uses all its cores. The blocks are dealt
to volumes, `.gpu/1`, `.gpu/2` and so on, each small enough for one transfer. Blocks are compressed
again only if packages or rules changed. On the other machine, at the root of the repository:

    python3 .gpu/1/unpack.py /tmp/gpu              # each volume, in any order
    . /tmp/gpu/env.sh && python3 -m benchmarks.gpu --out result.json
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

UNPACK = Path(__file__).with_name("unpack.py")
SPARE_BYTES = 2 << 20
BLOCK_BYTES, BIG_BYTES = 32 << 20, 2 << 20
PYTHON = "3.12"
PLATFORMS = (
    *(f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 24, 17)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)
PARTS = {
    # What benchmarks without Ray import and images with torch lack.
    "tvm": ("apache-tvm", "apache-tvm-ffi", "xgboost-cpu", "platformdirs"),
    # Ray's core: the product starts it without a dashboard.
    "ray": ("ray", "jsonschema", "jsonschema-specifications", "referencing", "rpds-py"),
    # Tracking, pages and timelines, which the command line imports when it comes to them.
    "more": (
        *("mlflow-skinny", "sqlalchemy", "alembic", "mako", "onnxslim", "altair", "perfetto"),
        *("vl-convert-python", "cachetools", "databricks-sdk", "google-auth", "pyasn1"),
        *("pyasn1-modules", "cryptography", "cffi", "pycparser", "gitpython", "gitdb", "smmap"),
        *("importlib-metadata", "opentelemetry-api", "opentelemetry-sdk", "opentelemetry-proto"),
        *("opentelemetry-semantic-conventions", "pydantic", "pydantic-core", "annotated-types"),
        *("typing-inspection", "python-dotenv", "sqlparse", "fastapi", "starlette", "uvicorn"),
    ),
}
LEFT_OUT = (
    *("tvm/3rdparty/*", "tvm/src/*", "tvm/cmake/*", "tvm/lib64/*", "tvm/licenses/*"),
    *("tvm_ffi/3rdparty/*", "tvm_ffi/src/*", "tvm_ffi/lib/cmake/*", "tvm_ffi/cython/*"),
    *("tvm_ffi/share/*", "ray/jars/*", "ray/cpp/*", "ray/include/*", "ray/rllib/*"),
    *("ray/dashboard/client/*", "ray/serve/*", "ray/tune/*", "ray/train/*", "ray/data/*"),
    *("ray/llm/*", "*/tests/*", "*.pyi", "*.lib", "*.a", "*.map"),
)
"""Patterns of names in wheels. TVM's headers stay: what links a library compiles code with them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A compressed piece: of one large file, or an archive of all small ones.

    Attributes:
        file: its name in the volume.
        path: of the large file in the folder of packages; empty for the archive.
        at, size, mode: where it begins in that file, and the file's size and permissions.
    """

    file: str
    path: str = ""
    at: int = 0
    size: int = 0
    mode: int = 0


def main() -> int:
    """Run the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.kit.pack")
    flags.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; tvm if none is named")
    flags.add_argument("--preset", type=int, default=6, help="of xz, 0 to 9; lower is quicker")
    flags.add_argument("--limit", type=int, default=64, help="MiB that travel at once")
    given = flags.parse_args()
    parts = given.parts or ["tvm"]
    if unknown := [part for part in parts if part not in PARTS]:
        flags.error(f"no part is called {unknown[0]}")
    root = Path.cwd()
    if not (root / "pyproject.toml").is_file():
        print("run it at the root of the repository", file=sys.stderr)
        return 2
    out = root / ".gpu"
    for part in parts:
        compress_part(part, root, out, given.preset)
    free_bytes = (given.limit << 20) - SPARE_BYTES - size_of_tree(root)
    volumes = deal(out, parts, free_bytes)
    if volumes is None:
        print("a block alone is too large to travel beside this working tree", file=sys.stderr)
        return 1
    for volume in volumes:
        size_mib = sum(path.stat().st_size for path in volume.iterdir()) / (1 << 20)
        print(f"{volume.relative_to(root)}: {size_mib:.1f} MiB")
    return 0


def size_of_tree(root: Path) -> int:
    """Bytes of the files that travel every time: those that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True).stdout.split(b"\0")
    paths = {root / os.fsdecode(name) for name in names if name}
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.is_file())


def requirements(part: str, root: Path) -> list[str]:
    """The packages of a part, in the versions that the project asks for."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    versions: dict[str, str] = {}
    for text in project["dependencies"]:
        match = re.match(r"\s*([A-Za-z0-9._-]+)(\[[^]]*\])?(.*)", text.split(";")[0])
        if match:
            versions[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[3].strip()
    return [package + versions.get(package, "") for package in PARTS[part]]


def compress_part(part: str, root: Path, out: Path, preset: int) -> None:
    """Fetch and compress a part, unless that was done before."""
    folder, packages = out / "blocks" / part, requirements(part, root)
    rules = json.dumps([packages, LEFT_OUT, preset, BLOCK_BYTES, BIG_BYTES])
    mark = hashlib.sha256(rules.encode()).hexdigest()
    if (folder / "mark").is_file() and (folder / "mark").read_text() == mark:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gpu-pack-") as scratch:
        wheels, site = Path(scratch, "wheels"), Path(scratch, "site")
        fetch(packages, wheels)
        for wheel in sorted(wheels.glob("*.whl")):
            unzip(wheel, site)
        strip(site)
        write_blocks(site, folder, preset)
    (folder / "mark").write_text(mark)


def fetch(packages: list[str], wheels: Path) -> None:
    """Download wheels for the other machine."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q"]
    command += ["--disable-pip-version-check", "--python-version", PYTHON, "--implementation", "cp"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, "-d", str(wheels), *packages], check=True)


def unzip(wheel: Path, site: Path) -> None:
    """Unpack a wheel without what is left out."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            name = info.filename
            if name.endswith("/") or any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT):
                continue
            archive.extract(info, site)
            if (info.external_attr >> 16) & 0o111:  # zipfile drops permissions
                (site / name).chmod(0o755)


def strip(site: Path) -> None:
    """Take symbols that nothing needs out of large shared objects."""
    if shutil.which("strip") is None:
        return
    for path in site.rglob("*"):
        if path.is_file() and path.stat().st_size > BIG_BYTES and _is_elf(path):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=False)


def write_blocks(site: Path, folder: Path, preset: int) -> None:
    """Write all small files as one archive, and pieces of the large ones."""
    paths = sorted(path for path in site.rglob("*") if path.is_file())
    big = [path for path in paths if path.stat().st_size > BIG_BYTES]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in paths:
            if path not in big:
                archive.add(path, str(path.relative_to(site)), filter=_anonymous)
    blocks, contents = [Block("small.xz")], [buffer.getvalue()]
    for number, path in enumerate(big):
        data, name = path.read_bytes(), str(path.relative_to(site))
        mode = path.stat().st_mode & 0o777
        for at in range(0, len(data), BLOCK_BYTES):
            file = f"{number:02}-{at // BLOCK_BYTES:02}.xz"
            blocks.append(Block(file, name, at, len(data), mode))
            contents.append(data[at : at + BLOCK_BYTES])
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # lzma lets go of the interpreter
        jobs = [
            pool.submit(_compress, folder / block.file, data, preset, bool(block.path))
            for block, data in zip(blocks, contents, strict=True)
        ]
        for job in jobs:
            job.result()
    (folder / "blocks.json").write_text(json.dumps([asdict(block) for block in blocks]))


def deal(out: Path, parts: list[str], free_bytes: int) -> list[Path] | None:
    """Volumes with all blocks in their order, each of at most `free_bytes`; None where one block
    is larger than that."""
    for old in out.glob("[0-9]*"):
        shutil.rmtree(old)
    room_of_one = free_bytes - UNPACK.stat().st_size - (64 << 10)
    blocks = [(part, block) for part in parts for block in _read_blocks(out / "blocks" / part)]
    volumes: list[Path] = []
    index: list[dict[str, Any]] = []
    room = 0
    for part, block in blocks:
        source = out / "blocks" / part / block.file
        if source.stat().st_size > room:
            if source.stat().st_size > room_of_one:
                return None
            volumes.append(out / str(len(volumes) + 1))
            volumes[-1].mkdir()
            shutil.copyfile(UNPACK, volumes[-1] / UNPACK.name)
            index, room = [], room_of_one
        room -= source.stat().st_size
        name = f"{part}-{block.file}"
        os.link(source, volumes[-1] / name)
        index.append({**asdict(block), "file": name})
        (volumes[-1] / "index.json").write_text(json.dumps({"of": len(blocks), "blocks": index}))
    return volumes


def _read_blocks(folder: Path) -> list[Block]:
    return [Block(**block) for block in json.loads((folder / "blocks.json").read_text())]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _compress(path: Path, data: bytes, preset: int, is_code: bool) -> None:
    chain: list[dict[str, Any]] = [
        {"id": lzma.FILTER_LZMA2, "preset": preset | lzma.PRESET_EXTREME}
    ]
    if is_code:
        chain.insert(0, {"id": lzma.FILTER_X86})
    path.write_bytes(lzma.compress(data, check=lzma.CHECK_CRC32, filters=chain))


if __name__ == "__main__":
    sys.exit(main())
