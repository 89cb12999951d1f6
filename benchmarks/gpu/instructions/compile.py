"""Programs to machine code: several in each call of nvcc, on all cores."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from spaces.codegen.cuda.compile import call_nvcc
from spaces.codegen.cuda.nvcc import command, find_nvcc, nvcc_version
from tests.spaces.emulation.instructions.program import Program
from tuner.errors import TunerError

LIMIT_S = 120.0
INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The file that holds each program's kernel, and what nvcc said of those without one."""

    cubins: Mapping[str, Path]
    errors: Mapping[str, str]


def join_sources(programs: Sequence[Program]) -> str:
    """One source with all of them: each in a namespace, kernels by their own names."""
    includes: dict[str, None] = {}
    parts = []
    for number, program in enumerate(programs):
        lines = program.code.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        rest = "\n".join(line for line in lines if not line.startswith("#include"))
        parts.append(f"namespace program_{number} {{\n{rest}\n}}")
    return "\n".join([*includes, *parts]) + "\n"


def compile_programs(
    programs: Sequence[Program], folder: Path, *, arch: str = "", cores: int = 0
) -> Compiled:
    """Compile all into `folder`, and keep the list of what is where in its index.

    Args:
        arch: as `sm_90a`, for all of them; otherwise each is compiled for the oldest that has it.
        cores: calls of nvcc at a time; all of this machine's where 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cores = cores or os.cpu_count() or 1
    groups: dict[tuple[str, bool], list[Program]] = {}
    for program in programs:
        groups.setdefault((arch or program.arch, program.fast_math), []).append(program)
    total = len(programs)
    jobs = []
    for (of, fast), members in groups.items():
        parts = max(1, round(cores * len(members) / total))
        jobs += [(of, fast, members[part::parts]) for part in range(parts)]
    cubins: dict[str, Path] = {}
    errors: dict[str, str] = {}
    with ThreadPoolExecutor(cores) as pool:
        results = pool.map(
            lambda job: _compile_group(folder / f"group-{job[0]}.cubin", *job[1]), enumerate(jobs)
        )
        for found, failed in results:
            cubins.update(found)
            errors.update(failed)
    index = {name: path.name for name, path in cubins.items()}
    (folder / INDEX).write_text(json.dumps({"cubins": index, "errors": errors}, indent=1))
    return Compiled(cubins, errors)


def read_index(folder: Path) -> Compiled:
    """What `compile_programs` left there.

    Raises:
        OSError, ValueError, KeyError: It left nothing that can be read.
    """
    index = json.loads((folder / INDEX).read_text())
    return Compiled({n: folder / file for n, file in index["cubins"].items()}, index["errors"])


def _compile_group(
    target: Path, arch: str, fast_math: bool, programs: Sequence[Program]
) -> tuple[dict[str, Path], dict[str, str]]:
    """All at once; where that fails, each alone, so that one mistake costs one program."""
    error = run_nvcc(join_sources(programs), target, arch=arch, fast_math=fast_math)
    if not error:
        return {program.name: target for program in programs}, {}
    if len(programs) == 1:
        return {}, {programs[0].name: error}
    cubins: dict[str, Path] = {}
    errors: dict[str, str] = {}
    for number, program in enumerate(programs):
        alone = target.with_name(f"{target.stem}-{number}.cubin")
        found, failed = _compile_group(alone, arch, fast_math, [program])
        cubins.update(found)
        errors.update(failed)
    return cubins, errors


def run_nvcc(source: str, target: Path, *, arch: str, fast_math: bool) -> str:
    """Compile one source. Empty where that went well, otherwise the line that says why not."""
    file = target.with_suffix(".cu")
    file.write_text(source)
    try:
        call = command(find_nvcc(), arch, file, target)
        call_nvcc([*call, *(["--use_fast_math"] if fast_math else [])], LIMIT_S)
    except (TunerError, RuntimeError) as error:
        return str(error)
    return ""


def version_of_nvcc() -> str:
    """As `13.0.88`; empty without nvcc."""
    try:
        return nvcc_version(find_nvcc())
    except TunerError:
        return ""
