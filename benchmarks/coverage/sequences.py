"""Transformers from the package of that name, their sequences open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.coverage.made import Made, Make

VOCABULARY, LONGEST = 200, 160
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 24, 29, 31, 32, 37, 47, 48, 53, 64, 67, 79,
            96, 97, 101, 113, 127, 128, 150)  # fmt: skip
"""Ends, primes, powers of two and one beyond."""
_BATCHES = (1, 2, 3, 4, 5, 7, 8, 12)
_RANGE = tuple(range(1, 129))


def _transformer(kind: str, config: Mapping[str, Any], output: str, *, mask: bool) -> Any:
    import transformers
    from torch import nn

    prefix = kind.removesuffix("LMHeadModel").removesuffix("ForCausalLM")
    prefix = prefix.removesuffix("EncoderModel").removesuffix("Model")
    more = {} if mask else {"use_cache": False}

    class Out(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = getattr(transformers, f"{prefix}Config")(**config)
            self.network = getattr(transformers, kind)(made)

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            found = self.network(input_ids=input_ids, attention_mask=attention_mask, **more)
            return getattr(found, output)

    return Out().eval()


_SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LONGEST,
}
_MINI = {**_SMALL, "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 1024}
"""As wide and deep as the Bert that is called mini."""
_NETWORKS: dict[str, tuple[str, Mapping[str, Any], str, bool]] = {
    "bert": ("BertModel", _SMALL, "last_hidden_state", True),
    "roberta": ("RobertaModel", _SMALL, "last_hidden_state", True),
    "electra": ("ElectraModel", {**_SMALL, "embedding_size": 32}, "last_hidden_state", True),
    "distilbert": (
        "DistilBertModel",
        {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": VOCABULARY,
         "max_position_embeddings": LONGEST},
        "last_hidden_state",
        True,
    ),
    "mpnet": ("MPNetModel", _SMALL, "last_hidden_state", True),
    "t5": (
        "T5EncoderModel",
        {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
         "vocab_size": VOCABULARY},
        "last_hidden_state",
        True,
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": LONGEST},
        "logits",
        False,
    ),
    "llama": ("LlamaForCausalLM", {**_SMALL, "num_key_value_heads": 2}, "logits", False),
    "mistral": ("MistralForCausalLM", {**_SMALL, "num_key_value_heads": 2}, "logits", False),
    "qwen2": ("Qwen2ForCausalLM", {**_SMALL, "num_key_value_heads": 2}, "logits", False),
    "gpt_neox": ("GPTNeoXForCausalLM", _SMALL, "logits", False),
    "bert mini": ("BertModel", _MINI, "last_hidden_state", True),
    "t5 mini": (
        "T5EncoderModel",
        {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4,
         "vocab_size": VOCABULARY},
        "last_hidden_state",
        True,
    ),
    "gpt2 mini": (
        "GPT2LMHeadModel",
        {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": VOCABULARY,
         "n_positions": 2 * LONGEST},
        "logits",
        False,
    ),
    "llama mini": (
        "LlamaForCausalLM",
        {**_MINI, "num_key_value_heads": 2, "max_position_embeddings": 2 * LONGEST},
        "logits",
        False,
    ),
}  # fmt: skip


def _sequence(name: str, batch: bool) -> Made:
    import torch

    kind, config, output, mask = _NETWORKS[name]
    shape = (2, 24) if batch else (1, 24)
    inputs = {"input_ids": torch.randint(3, VOCABULARY, shape)}
    if mask:
        inputs["attention_mask"] = torch.ones(shape, dtype=torch.int64)
    axes = {0: "batch", 1: "sequence"} if batch else {1: "sequence"}
    tuned = {"sequence": _RANGE, **({"batch": _BATCHES[:4]} if batch else {})}
    tried = {"sequence": _LENGTHS, **({"batch": _BATCHES} if batch else {})}
    network = _transformer(kind, config, output, mask=mask)
    return Made(network, inputs, dict.fromkeys(inputs, axes), tuned, tried)


def _step(name: str) -> Made:
    """One new token of a decoder, the keys and values of those before it given and returned."""
    import torch
    from transformers import DynamicCache

    kind, config, _, _ = _NETWORKS[name]
    network = _transformer(kind, config, "", mask=False).network
    layers, heads, width = _cache_shape(network.config)

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, *past: Any) -> Any:
            pairs = list(zip(past[::2], past[1::2], strict=True))
            cache = DynamicCache(ddp_cache_data=pairs)
            found = self.network(input_ids=input_ids, past_key_values=cache, use_cache=True)
            kept = (part for layer in cache.layers for part in (layer.keys, layer.values))
            return (found.logits, *kept)

    names = [f"{part}_{layer}" for layer in range(layers) for part in ("keys", "values")]
    inputs = {name: torch.randn(1, heads, 24, width) for name in names}
    given = {"input_ids": torch.randint(3, VOCABULARY, (1, 1)), **inputs}
    axes = {key: {2: "past"} for key in names}
    tuned, tried = {"past": tuple(range(1, 257))}, {"past": (*_LENGTHS[::2], 192, 255, 256, 290)}
    return Made(Step().eval(), given, axes, tuned, tried)


def _cache_shape(config: Any) -> tuple[int, int, int]:
    """Layers, heads of keys, and the width of a head."""
    heads = config.num_attention_heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    return config.num_hidden_layers, kept, config.hidden_size // heads


SEQUENCES: dict[str, Make] = {
    **{f"{name}, sequence": partial(_sequence, name, False) for name in _NETWORKS},
    **{f"{name}, batch and sequence": partial(_sequence, name, True) for name in ("bert", "llama")},
    **{f"{name}, past": partial(_step, name) for name in ("gpt2 mini", "llama mini")},
}
"""Transformers by name."""
