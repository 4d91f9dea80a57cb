"""Triplets about birds, a tokenizer of their words, and tiny random language models of four families."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import levelhead.lm.triplets

Triplet = partial(levelhead.lm.triplets.Triplet, term="bird", bias_type="kind")
TRIPLETS = [
    Triplet("a red bird sings all day", "a red bird sleeps all day", "a red bird stone all day"),
    Triplet("the owl is awake", "the owl is fast asleep now", "the owl is a house", term="owl"),
    Triplet("it sings", "it sleeps", "stone house", "a bird came by", term="finch", task="intersentence"),
    Triplet("they fly far", "they walk far", "they day far", "the geese came by", term="goose", task="intersentence"),
]
WORDS = sorted({w for t in TRIPLETS for w in f"{t.stereotype} {t.anti_stereotype} {t.unrelated} {t.context}".split()})
FAMILIES = ("llama", "gpt2", "gpt_neo", "gemma2")


def tokenizer() -> Any:
    vocabulary = {word: position for position, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def language_model(family: str = "llama", layers: int = 2, attention: str | None = None, dropout: float = 0.0) -> Any:
    """A random model of width 16, two heads or more, always the same one; GPT-Neo has eager attention alone."""
    size = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 4, "attention_dropout": dropout}
    grouped = size | {"intermediate_size": 32, "num_key_value_heads": 2, "max_position_embeddings": 32}
    dropped = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), dropout)
    shape: Any = {
        "llama": grouped,
        # A cap far below Gemma's 50, so that leaving it out shows at the size of random weights.
        "gemma2": grouped | {"head_dim": 8, "attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 1},
        "gpt2": {"n_embd": 16, "n_layer": layers, "n_head": 4, "n_positions": 32, **dropped},
        "gpt_neo": {
            "hidden_size": 16, "num_layers": layers, "num_heads": 4, "max_position_embeddings": 32, "window_size": 8,
            "attention_types": [[["global", "local"], layers // 2]], "attention_dropout": dropout,
        },
    }[family]  # fmt: skip
    config = AutoConfig.for_model(family, vocab_size=40, **shape)
    config.pad_token_id = config.bos_token_id = config.eos_token_id = 0
    options = {} if attention is None or family == "gpt_neo" else {"attn_implementation": attention}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, **options)
    for parameter in model.parameters():  # the usual start is so small that all attention would be even
        if parameter.ndim == 2:
            parameter.data *= 15
    return model


def checkpointed(model: Any, reentrant: bool = False) -> Any:
    """Switch gradient checkpointing on, which transformers has renamed."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})
    return model
