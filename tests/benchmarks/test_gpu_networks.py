"""Whole networks in halves on the emulated device: what they compute, and that they are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needed import needed_package

torch = needed_package("torch")

from benchmarks.gpu.networks.__main__ import describe_row  # noqa: E402
from benchmarks.gpu.networks.comparison import compare  # noqa: E402
from benchmarks.gpu.networks.networks import NETWORKS  # noqa: E402

DECODERS = [name for name in NETWORKS if name.startswith(("llama", "qwen3"))]


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_fed_in_two_pieces_gives_what_it_gives_for_the_whole(name: str) -> None:
    _, network = NETWORKS[name].draw()
    tokens, *nothing = NETWORKS[name].feed(torch.Generator().manual_seed(0), (9, 0))
    with torch.no_grad():
        whole, *cache = network(tokens, *nothing)
        first, *between = network(tokens[:, :6], *nothing)
        second, *last = network(tokens[:, 6:], *between)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last, cache, rtol=1e-4, atol=1e-4)


def test_a_decoders_positions_and_norms_of_heads_matter() -> None:
    llama, qwen = (NETWORKS[name].draw()[1] for name in ("llama f16", "qwen3 f16"))
    tokens, *nothing = NETWORKS["llama f16"].feed(torch.Generator().manual_seed(0), (4, 0))
    with torch.no_grad():
        (logits, *_), (turned, *_) = (llama(t, *nothing) for t in (tokens, tokens.flip(1)))
        _, keys, *_ = qwen(tokens, *nothing)
    assert not torch.allclose(logits[:, -1], turned[:, 0], atol=1e-3)
    sizes = keys.pow(2).mean(-1)
    assert torch.all(sizes < 1.5**2)  # a norm's weights are between 0.5 and 1.5


def test_padding_behind_a_sentence_changes_nothing_of_it() -> None:
    _, network = NETWORKS["bert layer f16"].draw()
    x = torch.randn((1, 7, 128), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    with torch.no_grad():
        padded = network(x, mask)[:, :4]
        alone = network(x[:, :4], mask[:, :4])
    torch.testing.assert_close(padded, alone, rtol=1e-5, atol=1e-5)


def test_a_line_says_where_a_network_is_wrong() -> None:
    sizes = [
        {"sizes": [1, 7], "error": 1e-3, "error_of_torch": 2e-3, "right": True},
        {"sizes": [5, 0], "error": 0.5, "error_of_torch": 1e-3, "right": False},
    ]
    row = {"network": "n", "arch": "sm_80", "tasks": 3, "trials": 6, "tuned_s": 4.0, "sizes": sizes}
    assert describe_row(row).endswith("5.00e-01 (PyTorch 2.00e-03)  wrong at [5, 0]")
    assert describe_row({**row, "sizes": sizes[:1]}).endswith("right at all 1 sizes")


@pytest.mark.tvm
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("qwen3 f16", "sm_90a"),
        ("llama bf16", "sm_80"),
        ("llama int4", "sm_90a"),
        ("bert layer f16", "sm_80"),
    ],
)
def test_a_network_that_was_tuned_is_right_at_every_size(
    name: str, arch: str, tmp_path: Path
) -> None:
    row = compare(name, arch, tmp_path / "run", trials=16)
    assert row["right"], row["sizes"]
    assert any(row["tuned"])


@pytest.mark.tvm
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_a_resnet_that_was_tuned_is_right(tmp_path: Path) -> None:
    assert compare("resnet18 f16", "sm_90a", tmp_path / "run", trials=20)["right"]
