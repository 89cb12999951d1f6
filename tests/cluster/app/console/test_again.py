"""The command that goes on with a run says again what the run does not keep, and nothing else."""

from __future__ import annotations

import shlex

import pytest

from cluster.app.cli import cli
from cluster.app.console.again import again

TUNE = cli.commands["tune"]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("m.onnx", ""),
        ("--run runs/x", ""),
        ("m.py:f --arg m=5 --dim T=1..9 --shape x=1 --target llvm --trials 9 --time-budget 9s", ""),
        ('m.onnx --target \'{"kind": "llvm"}\'', '--target \'{"kind": "llvm"}\''),
        ("m.onnx --json --debug --details --seeds-from runs/y", ""),
        (
            "m.onnx --address=127.0.0.1:6379 --no-cut --only 'conv*' --seed 3",
            "--address 127.0.0.1:6379 --no-cut --only 'conv*' --seed 3",
        ),
        ("m.onnx --fast-math --l2=cold", "--fast-math --l2 cold"),
        ("--space 's.py:mine' m.onnx --mutator a.py:A --mutator b.py:B",) * 2,
    ],
)
def test_what_is_said_again(typed: str, wanted: str) -> None:
    wanted = wanted.replace(" m.onnx", "")
    told = again(TUNE, shlex.split(typed), "runs/my run", 48)
    assert shlex.split(told) == [
        *["tuner", "tune", "--run", "runs/my run", "--trials", "48"],
        *shlex.split(wanted),
    ]
    assert TUNE.make_context("tune", shlex.split(told)[2:])
