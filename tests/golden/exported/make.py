"""Makes the files beside it: tiny networks as their users export them, with open dimensions.

    python tests/golden/exported/make.py [NAME ...]

It needs torch, transformers and onnxscript; the tests that read the files need none of them. What
an exporter writes about the source is left out, so that each file stays below 100 kB. Weights are
random, from a seed; two versions of an exporter may write other files.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from torch import nn
from torch.export import Dim
from transformers.cache_utils import DynamicCache

HERE = Path(__file__).parent
LONGEST = 40
"""Rows of the tables of positions."""
SIZES = {"vocab_size": 50, "max_position_embeddings": LONGEST}
Case = tuple[nn.Module, tuple[Any, ...], Any, dict[str, dict[int, str]]]
"""A network, example inputs, which of their dimensions are open, and what the old exporter calls
these."""


class Output(nn.Module):
    """A network of transformers, one of its outputs."""

    def __init__(self, network: nn.Module, name: str, **more: Any) -> None:
        super().__init__()
        self.network, self.name, self.more = network.eval(), name, more

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        found = self.network(input_ids=input_ids, attention_mask=attention_mask, **self.more)
        return getattr(found, self.name)


class Step(nn.Module):
    """One step of a decoder: a token, and the keys and values of all before it."""

    def __init__(self, network: nn.Module, layers: int) -> None:
        super().__init__()
        self.network, self.layers = network.eval(), layers

    def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> tuple[Any, ...]:
        cache = DynamicCache()
        for layer in range(self.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.network(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        kept = (x for layer in found.past_key_values.layers for x in (layer.keys, layer.values))
        return (found.logits, *kept)


class UNet(nn.Module):
    """Down and up again, joined with what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.lower = self._block(3, 4), self._block(4, 6)
        self.inner, self.upper = self._block(6, 6), self._block(12, 4)
        self.up, self.out = self._block(8, 4), nn.Conv2d(4, 2, 1)
        self.pool = nn.MaxPool2d(2)
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU())

    def forward(self, x: Any) -> Any:
        high = self.down(x)
        low = self.lower(self.pool(high))
        low = self.upper(torch.cat([self.larger(self.inner(self.pool(low))), low], 1))
        return self.out(self.up(torch.cat([self.larger(low), high], 1)))


def ids(*shape: int) -> Any:
    return torch.randint(0, SIZES["vocab_size"], shape)


def bert_network() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, **SIZES
    )
    return Output(transformers.BertModel(config), "last_hidden_state")


def gpt2_network() -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=50, n_positions=LONGEST
    )
    return transformers.GPT2LMHeadModel(config)


def llama_network() -> nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, **SIZES,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def sequence() -> Any:
    return Dim("sequence", min=2, max=LONGEST)


AXES = {"input_ids": {1: "sequence"}, "attention_mask": {1: "sequence"}}


def bert() -> Case:
    open_dims = ({1: (length := sequence())}, {1: length})
    return bert_network(), (ids(1, 7), torch.ones(1, 7, dtype=torch.int64)), open_dims, AXES


def bert_batch() -> Case:
    open_dim = {0: Dim("batch", min=1, max=8), 1: sequence()}
    axes = {name: {0: "batch", 1: "sequence"} for name in AXES}
    given = (ids(2, 7), torch.ones(2, 7, dtype=torch.int64))
    return bert_network(), given, (open_dim, open_dim), axes


def t5() -> Case:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=50
    )
    network = Output(transformers.T5EncoderModel(config), "last_hidden_state")
    open_dims = ({1: (length := sequence())}, {1: length})
    return network, (ids(1, 7), torch.ones(1, 7, dtype=torch.int64)), open_dims, AXES


def gpt2() -> Case:
    network = Output(gpt2_network(), "logits", use_cache=False)
    return network, (ids(1, 7),), ({1: sequence()},), {"input_ids": {1: "sequence"}}


def llama() -> Case:
    network = Output(llama_network(), "logits", use_cache=False)
    return network, (ids(1, 7),), ({1: sequence()},), {"input_ids": {1: "sequence"}}


def step(network: nn.Module, heads: int, width: int) -> Case:
    length = Dim("past", min=1, max=LONGEST - 1)
    past = [torch.randn(1, heads, 7, width) for _ in range(2)]
    open_dims = {
        "input_ids": None,
        "attention_mask": {1: length + 1},
        "past": tuple({2: length} for _ in past),
    }
    given = (ids(1, 1), torch.ones(1, 8, dtype=torch.int64), *past)
    return Step(network, 1), given, open_dims, {}


def gpt2_step() -> Case:
    return step(gpt2_network(), 2, 8)


def llama_step() -> Case:
    return step(llama_network(), 2, 4)


def unet() -> Case:
    height, width = Dim("h", min=2, max=16), Dim("w", min=2, max=16)
    axes = {"x": {2: "height", 3: "width"}}
    return UNet().eval(), (torch.randn(1, 3, 16, 24),), ({2: 4 * height, 3: 4 * width},), axes


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case for case in (bert, bert_batch, t5, gpt2, llama, gpt2_step, llama_step, unet)
}


def with_dynamo(path: Path, case: Case) -> None:
    network, given, open_dims, _ = case
    torch.onnx.export(
        network, given, path, dynamo=True, dynamic_shapes=open_dims, external_data=False,
        verbose=False,
    )  # fmt: skip


def with_tracing(path: Path, case: Case) -> None:
    network, given, _, axes = case
    if not axes:
        raise ValueError("the old exporter takes no caches")
    torch.onnx.export(
        network, given, path, dynamo=False, input_names=list(axes)[: len(given)],
        dynamic_axes=axes, opset_version=17,
    )  # fmt: skip


def stripped(path: Path) -> bytes:
    """A file without what it says of its source."""
    proto = onnx.load(path)
    proto.ClearField("metadata_props")
    proto.graph.ClearField("metadata_props")
    proto.graph.ClearField("value_info")
    for node in proto.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    proto.ClearField("functions")
    return bytes(proto.SerializeToString())


def main() -> None:
    for name in sys.argv[1:] or CASES:
        for how, export in (("dynamo", with_dynamo), ("tracing", with_tracing)):
            torch.manual_seed(0)
            out = HERE / f"{name}-{how}.onnx"
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                try:
                    export(path, CASES[name]())
                except Exception as error:  # exporters refuse some: those files are not there
                    print(f"{out.name}: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
                    continue
                out.write_bytes(stripped(path))
            print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
