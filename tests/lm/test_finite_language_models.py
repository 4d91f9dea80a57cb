"""A language model whose weights hold NaN is refused, and the items are named."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from klaad_examples import TRIPLETS, language_model, tokenizer
from test_model import make, train_tokenizer
from transformers import BertConfig, BertForMaskedLM

from levelhead.lm.gap_analysis import pair_gaps
from levelhead.lm.model import LanguageModel
from levelhead.types import LevelheadError

NAMES = ["first", "second", "third"]
ASKED: dict[str, Callable[[LanguageModel], Any]] = {
    "log_likelihoods": lambda model: model.log_likelihoods(["one two", "three", "a red bird"], NAMES),
    "windows": lambda model: list(model.window_log_likelihoods(["one two", "three", "a red bird"], None, NAMES)),
    "options": lambda model: list(
        model.option_log_likelihoods(["one", "two", "a red"], [[" two", " three"]] * 3, NAMES)
    ),
    "greedy": lambda model: list(model.generate(["one"] * 3, seed=0, max_new_tokens=3, greedy=True, names=NAMES)),
    "sampled": lambda model: list(model.generate(["one"] * 3, seed=0, max_new_tokens=3, names=NAMES)),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_language_model_with_nan_weights_names_the_items(asked: str) -> None:
    model = make()
    with torch.no_grad():
        model.network.model.norm.weight[0] = math.nan
    with pytest.raises(LevelheadError, match=r"no finite number for \d of the \d items asked together: [a-z, ]*second"):
        ASKED[asked](model)


def test_a_masked_language_model_with_nan_weights_names_the_items() -> None:
    config = BertConfig(
        vocab_size=320, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    network = BertForMaskedLM(config).eval()
    with torch.no_grad():
        network.cls.predictions.bias[0] = math.nan
    model = LanguageModel(network, train_tokenizer(bos=True, framed=True), causal=False, name="broken")
    with pytest.raises(LevelheadError, match="broken gives no finite number for 1 of the 1 items asked together: pair"):
        list(model.shared_pseudo_log_likelihoods([("a red bird", "a red boat")], ["pair"]))


def test_an_option_that_overflows_is_no_broken_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(model, "_answer", lambda questions: [(0, [(math.nan, 1), (-1.0, 1)])])
    found = model.option_log_likelihoods(["one"], [[" two", " three"]], ["first"])
    assert next(found)[1][1] == (-1.0, 1)


def test_an_attention_gap_of_nan_weights_is_refused() -> None:
    network = language_model()
    with torch.no_grad():
        next(network.parameters())[...] = math.nan
    with pytest.raises(LevelheadError, match="cross-entropies are not finite for"):
        pair_gaps(network, tokenizer(), TRIPLETS)
