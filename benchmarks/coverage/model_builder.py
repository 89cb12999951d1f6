"""Language models as onnxruntime-genai's model builder writes them, of Hugging Face's architectures
with two small layers and drawn weights."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.coverage.made import write_calls
from tests.spaces.frontends.onnx.language_models import step
from tests.spaces.frontends.onnx.quantizing_tools import plainly

_SHARED: Mapping[str, Any] = MappingProxyType({"num_key_value_heads": 2})
_WIDE: Mapping[str, Any] = MappingProxyType({**_SHARED, "head_dim": 64})
_WINDOW: Mapping[str, Any] = MappingProxyType(
    {**_WIDE, "sliding_window": 64, "query_pre_attn_scalar": 64}
)
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Ernie4_5": _WIDE,
        "Gemma": _WIDE,
        "Gemma2": _WINDOW,
        "Granite": _SHARED,
        "Llama": _SHARED,
        "Lfm2": {**_SHARED, "layer_types": ["conv", "full_attention"]},
        "Mistral": {**_SHARED, "sliding_window": None},
        "Nemotron": _SHARED,
        "Olmo": _SHARED,
        "Phi": {},
        "Phi3": {**_SHARED, "original_max_position_embeddings": 512},
        "Qwen2": _SHARED,
        "Qwen3": _WIDE,
        "SmolLM3": _SHARED,
    }
)
"""What the configuration of each says beyond `_SIZES`."""
VARIANTS: Mapping[str, tuple[str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "Llama, float32": ("Llama", "fp32", ()),
        "Llama, 8 bits": ("Llama", "int8", ()),
        "Llama, k-quant with zero points": (
            "Llama",
            "int4",
            ("int4_algo_config=k_quant_mixed", "int4_is_symmetric=false"),
        ),
        "Qwen3, blocks of 64, rows in floats": (
            "Qwen3",
            "int4",
            ("int4_accuracy_level=0", "int4_block_size=64"),
        ),
        "Gemma2, caches of all rows": ("Gemma2", "int4", ("windowed_kv_cache=false",)),
        **{f"{name}, 4 bits": (name, "int4", ()) for name in ARCHITECTURES if name != "Gemma2"},
    }
)
"""By name the architecture, the precision and the builder's options. Caches of one window, which
Gemma2 has without its option, take no such calls, and are refused."""
_SIZES = MappingProxyType(
    {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
)
_TUNED = MappingProxyType(
    {
        "batch_size": [1, 2],
        "sequence_length": [1, 3, 5, 17],
        "past_sequence_length": [0, 4, 5, 16],
        "total_sequence_length": [5, 6, 7, 17],
    }
)
_LIMIT_S = 300.0


def write_built(
    name: str, calls: Iterable[tuple[int, int, int]], within: float, folder: Path
) -> None:
    """Write one of `VARIANTS` and its calls.

    Args:
        calls: new rows, those of before, and how many in a batch.
        within: see `write_calls`.
    """
    import onnx

    architecture, precision, options = VARIANTS[name]
    with tempfile.TemporaryDirectory() as made:
        source, built = Path(made) / "source", Path(made) / "built"
        _write_source(architecture, source)
        _build(source, built, precision, options)
        proto = onnx.load(built / "model.onnx")
    onnx.save(proto, folder / "model.onnx")
    fed = [step(proto, *call) for call in calls]
    write_calls(folder, fed, [plainly(proto, call) for call in fed], _TUNED, within)


def _write_source(architecture: str, folder: Path) -> None:
    """A model as Hugging Face's library saves it, with a tokenizer, which the builder wants."""
    import torch
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    torch.manual_seed(0)
    said = {**_SIZES, **ARCHITECTURES[architecture]}
    config = getattr(transformers, f"{architecture}Config")(**said)
    getattr(transformers, f"{architecture}ForCausalLM")(config).eval().save_pretrained(folder)
    transformers.GenerationConfig().save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{n}": n for n in range(512)}, unk_token="w3"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


def _build(source: Path, built: Path, precision: str, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source)]
    command += ["-o", str(built), "-p", precision, "-e", "cpu", "-c", str(built / "cache")]
    command += ["--extra_options", *options] if options else []
    alone = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=alone, check=True, capture_output=True, timeout=_LIMIT_S)
