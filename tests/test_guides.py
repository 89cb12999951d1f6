"""The guides, followed to the letter: what each shows is run in order, in a folder of its own.

Only budgets are shortened. A block after "`FILE`:" is that file. Where PyTorch is missing, what one
of its blocks would have written is made here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.needed import needed_package

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
_BLOCK = re.compile(r"(?:`([\w.]+\.(?:py|json))`:\n\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
_TRIALS = re.compile(r"(trials\"?[=:] ?)\d+")
_SHORTER = ("--trials=16", "--time-budget=60s")


def steps(page: Path) -> Iterator[tuple[str, str, str]]:
    """Language, name of the file if it is one, and text of each block."""
    for match in _BLOCK.finditer(page.read_text()):
        name, language, text = match.groups()
        yield language, name or "", text


def words_of(command: str) -> list[str]:
    """A command that is shown as one that this Python runs; empty for what installs."""
    words = shlex.split(command, comments=True)
    match words[:1]:
        case ["tuner"]:
            shorter = _SHORTER if words[1] == "tune" else ()
            return [sys.executable, "-m", "tuner", *words[1:], *shorter]
        case ["python"]:
            return [sys.executable, *words[1:]]
        case ["pip"] | []:
            return []
    raise AssertionError(f"a command that nobody runs here: {command}")


def run(folder: Path, *words: str) -> None:
    told = ("TVM_", "OMP_", "RAY_", "MLFLOW_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    done = subprocess.run(
        words, cwd=folder, env=plain, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"


def tokens_network() -> onnx.ModelProto:
    """What the guide to Bert begins with, in small: tokens of an open length, and a layer."""
    rng = np.random.default_rng(0)
    words, dense = (rng.standard_normal(s, "float32") / 8 for s in ((30522, 32), (32, 48)))
    nodes = [
        helper.make_node("Gather", ["words", "tokens"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "dense"], ["product"]),
        helper.make_node("Relu", ["product"], ["hidden"]),
    ]
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "sequence"])
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, "sequence", 48])
    weights = [numpy_helper.from_array(words, "words"), numpy_helper.from_array(dense, "dense")]
    graph = helper.make_graph(nodes, "tokens", [tokens], [hidden], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def lacks(text: str) -> bool:
    """Whether a program needs what is not installed."""
    needed = (
        name for name in ("torch", "transformers") if re.search(rf"(import|from) {name}\b", text)
    )
    return any(find_spec(name) is None for name in needed)


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.stem)
def test_a_guide_works_as_it_is_written(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if page.stem == "pytorch":
        needed_package("torch")
    onnx.save(tokens_network(), str(tmp_path / "bert.onnx"))
    ran = 0
    for language, name, text in steps(page):
        if name:
            (tmp_path / name).write_text(text)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if words := words_of(line):
                    run(tmp_path, *words)
                    ran += 1
        elif language == "python" and not lacks(text):
            run(tmp_path, sys.executable, "-c", _TRIALS.sub(r"\g<1>16", text))
            ran += 1
    assert ran >= 3
