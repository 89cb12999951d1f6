"""Machine code is read as NVIDIA's disassembler reads it."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from spaces.codegen.cuda import instructions
from spaces.codegen.cuda.compile import compile_cuda
from spaces.codegen.cuda.cubin import kernel_texts
from spaces.codegen.cuda.instructions import KNOWN, Code, read_code
from tests.needed import needs_nvcc

SOURCE = Path(__file__).with_name("every_instruction.cu").read_text()
IN_ALL = {75, 80, 90, 120}
"""Architectures that are compiled for in `make test`, too."""
_LINE = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<guard>@\S+ )?\s*(?P<name>[A-Z][\w.]*)\s*(?P<rest>[^;]*);"
)
_SIZES = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128}
_OTHERS = {("CALL", "ABS"), ("SYNCS", "CCTL")}
"""Instructions of their own, that the disassembler calls by the name of another."""
_MATRICES = {"2": 64, "4": 128}


@cache
def compile_for(architecture: int) -> bytes:
    return compile_cuda(SOURCE, f"sm_{architecture}").binary


def disassemble(binary: bytes, folder: Path) -> list[re.Match[str]]:
    file = folder / "every.cubin"
    file.write_bytes(binary)
    said = subprocess.check_output(["cuobjdump", "-sass", str(file)], text=True, timeout=60)
    return list(_LINE.finditer(said))


def name_of(line: re.Match[str]) -> str:
    """What the reader is to call it."""
    kind, *words = line["name"].split(".")
    if kind not in instructions.KINDS or line["guard"] == "@!PT ":
        return ""
    if (kind, *words[:1]) in _OTHERS or (kind == "HFMA2" and "-RZ, RZ" in line["rest"]):
        return ""
    if kind in ("LDSM", "STSM"):
        return f"{kind}.{next((_MATRICES[w] for w in words if w in _MATRICES), 32)}"
    if kind in ("LD", "LDG", "LDL", "LDS", "ST", "STG", "STL", "STS", "LDGSTS"):
        return f"{kind}.{next((_SIZES[w] for w in words if w in _SIZES), 32)}"
    return kind


def target_of(line: re.Match[str]) -> int:
    is_jump = name_of(line) in ("BRA", "CALL")
    return int(re.findall(r"0x([0-9a-f]+)", line["rest"])[-1], 16) // 16 if is_jump else -1


@needs_nvcc
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(n, marks=() if n in IN_ALL else pytest.mark.long) for n in sorted(KNOWN)],
)
def test_every_instruction_is_read_as_the_disassembler_reads_it(
    architecture: int, tmp_path: Path
) -> None:
    binary = compile_for(architecture)
    (text,) = kernel_texts(binary).values()
    code, lines = read_code(text, architecture), disassemble(binary, tmp_path)
    assert code is not None
    assert [int(line["at"], 16) // 16 for line in lines] == [*range(len(code.names))]
    assert [*code.names] == [*map(name_of, lines)]
    assert [*code.targets] == [*map(target_of, lines)]
    for line, conditional in zip(lines, code.conditional, strict=True):
        own = re.match(r"!?U?P\d, ", line["rest"]) if target_of(line) >= 0 else None
        assert conditional == bool(line["guard"] or own), line[0]
    assert {"BRA", "LDG.128", "LDS.64", "LDSM.128", "FFMA", "BAR"} <= {*code.names}
    assert architecture < 80 or {"HMMA", "IMMA", "LDGSTS.32", "LDGSTS.128"} <= {*code.names}
    assert architecture < 90 or {"UTMALDG", "SYNCS", "STSM.128", "UBLKCP"} <= {*code.names}
    assert architecture != 90 or {"HGMMA", "IGMMA"} <= {*code.names}


@needs_nvcc
def test_each_name_is_that_of_an_instruction_of_some_architecture() -> None:
    """What is named here and never seen was never compared."""
    seen: set[str] = set()
    for architecture in (75, 80, 89, 90, 100):
        (text,) = kernel_texts(compile_for(architecture)).values()
        code = read_code(text, architecture)
        assert code is not None
        seen |= {name.partition(".")[0] for name in code.names}
    assert seen >= instructions.KINDS


def test_nothing_is_read_of_an_architecture_that_is_not_known() -> None:
    assert read_code(bytes(32), 70) is None
    assert read_code(bytes(32), 80) == Code(("", ""), (True, True), (-1, -1))
