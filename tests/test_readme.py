"""The README and the tour, followed to the letter: their commands and programs, in order.

Only what would take hours is shortened (a budget of trials), and only what the reader is to bring
along is made here (`model.onnx`, `lengths.json`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[1]
README, TOUR, REFERENCE = (
    (ROOT / d).read_text() for d in ("README.md", "docs/tour.md", "docs/reference.md")
)
OURS = ("tuner", "spaces", "actors", "cluster")
FEW_TRIALS = "--trials=24"
"""Given after what is shown, and so in place of it."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(language: str, doc: str) -> list[str]:
    """A document's blocks of a language, in order."""
    return [text for name, text in _FENCE.findall(doc) if name == language]


def commands(word: str) -> Iterator[list[str]]:
    """What a reader is told to type that begins with `word`, each command once."""
    lines = [line for block in shown("sh", README + TOUR) for line in block.splitlines()]
    for words in dict.fromkeys(tuple(shlex.split(line, comments=True)) for line in lines):
        if words[:1] == (word,):
            yield [*words[1:]]


def program(with_: str, doc: str = TOUR) -> str:
    """The one program of a document with these words in it."""
    (found,) = [block for block in shown("python", doc) if with_ in block]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader works: the examples, and a model of their own."""
    made = tmp_path_factory.mktemp("reader")
    (made / "examples").symlink_to(ROOT / "examples")
    onnx.save(an_image_network(), str(made / "model.onnx"))
    return made


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Path:
    """All commands that are about `model.onnx`."""
    for words in commands("tuner"):
        if "model.onnx" in words and "--dim" not in words:
            tuner(folder, *words, *([FEW_TRIALS] if words[0] == "tune" else []))
    assert (folder / "runs" / "mine" / "run.json").is_file()
    return folder


def an_image_network() -> onnx.ModelProto:
    """A convolution, a rectifier, a pooling and a dense layer on an image of the usual size."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], strides=[4, 4]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"]),
    ]
    weights = [weight("w", 16, 3, 3, 3), weight("d", 16, 10)]
    return a_model(nodes, [1, 3, 224, 224], [1, 10], weights)


def a_sequence_network() -> onnx.ModelProto:
    """A dense layer over a sequence of symbolic length."""
    values = np.random.default_rng(0).standard_normal((32, 48), dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    weights = [numpy_helper.from_array(values, "w")]
    return a_model(nodes, ["sequence", 32], ["sequence", 48], weights)


def a_model(
    nodes: list[onnx.NodeProto],
    takes: list[int | str],
    gives: list[int | str],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, takes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, gives)
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def plain_environment() -> dict[str, str]:
    """That of a reader who never heard of threads' variables."""
    told = ("TVM_", "OMP_", "RAY_", "MLFLOW_")
    return {k: v for k, v in os.environ.items() if not k.startswith(told)}


def tuner(folder: Path, *words: str) -> None:
    run(folder, "-m", "tuner", *words)


def run_program(folder: Path, text: str, *, without: tuple[str, ...] = ()) -> None:
    """Run a program of the README in a process of its own that cannot import some packages."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    run(folder, "-c", blocked + text)


def run(folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode in codes, f"{shlex.join(words)}\n{done.stderr}"
    return done.stdout


def test_the_first_program_tunes_a_model_and_uses_the_library(folder: Path) -> None:
    (text,) = shown("python", README)
    assert '"2m"' in text
    shorter = text.replace('"2m"', '"20s"')
    run_program(folder, shorter + "\nassert output.shape == (1, 10) and result.snapshot.gain >= 1")


def test_the_commands_about_a_model_work_in_the_order_they_are_shown(tuned: Path) -> None:
    for words in commands("tuner"):
        about_it = "runs/mine" in words and words[0] != "tune"
        if words[0] == "verify":  # on a busy machine kernels take other times than they did
            assert " winner" in run(tuned, "-m", "tuner", *words, codes=(0, 1))
        elif about_it or words[0] in ("doctor", "top"):
            tuner(tuned, *words)
    assert (tuned / "model.so").stat().st_size > 0


def test_the_examples_are_tuned_as_shown(folder: Path) -> None:
    shown_ones = [words for words in commands("tuner") if words[1:2] and "examples/" in words[1]]
    assert len(shown_ones) >= 4
    for number, words in enumerate(shown_ones):
        tuner(folder, *words, FEW_TRIALS, f"--run=runs/example-{number}")


def test_symbolic_dimensions_are_tuned_as_shown(folder: Path) -> None:
    (words,) = [w for w in commands("tuner") if "model.onnx" in w and "--dim" in w]
    other = folder / "symbolic"
    other.mkdir()
    onnx.save(a_sequence_network(), str(other / "model.onnx"))
    (other / "lengths.json").write_text(json.dumps({"5": 0.2, "24": 1, "128": 0.1}))
    tuner(other, *words, FEW_TRIALS)


def test_a_library_of_a_tensor_program_runs_without_the_tuner(folder: Path) -> None:
    run_program(folder, program("tuner.tune("))
    tuner(folder, "export", "runs/gemm", "--lib", "gemm.so")
    values = "\nnp.testing.assert_allclose(c.numpy(), np.full((96, 64), 80.0))"
    run_program(folder, program('library["gemm"]') + values, without=OURS)


def test_a_library_of_a_model_runs_without_the_tuner(tuned: Path) -> None:
    tuner(tuned, "export", "runs/mine", "--lib", "model.so")
    values = "\nassert output.shape == (1, 10)\nassert np.isfinite(output.numpy()).all()"
    run_program(tuned, program('machine["main"]') + values, without=OURS)


def test_a_database_is_applied_as_shown(tuned: Path) -> None:
    tuner(tuned, "export", "runs/mine", "--database", "OUT_DIR")
    values = """
import numpy as np
machine = tvm.relax.VirtualMachine(library, tvm.cpu())
output = machine["main"](tvm.runtime.tensor(np.ones((1, 3, 224, 224), "float32")))
assert np.isfinite(output.numpy()).all()
assert tvm.get_global_func("runtime.NumThreads")() == int(target.attrs["num-cores"])
"""
    run_program(tuned, program("MetaScheduleApplyDatabase", REFERENCE) + values)


def test_mlflow_opens_with_the_command_that_is_shown(tuned: Path) -> None:
    ((*words, _),) = commands("mlflow")
    words = [w.replace("runs/demo", "runs/mine") for w in words]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mlflow", *words, port]
    with subprocess.Popen(
        command,
        cwd=tuned,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as server:
        try:
            assert "MLflow" in page(f"http://127.0.0.1:{port}/", server)
        finally:
            for process in [*psutil.Process(server.pid).children(recursive=True), server]:
                with contextlib.suppress(psutil.Error):
                    process.kill()


def page(url: str, server: subprocess.Popen[bytes]) -> str:
    until_s = time.monotonic() + 120.0
    while True:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                return str(answer.read().decode())
        except OSError:
            assert time.monotonic() < until_s, "no page"
            time.sleep(0.5)
