"""Gaps as functions for Trainer and scikit-learn."""

from __future__ import annotations

import math
from types import SimpleNamespace

import fairlearn.metrics as theirs
import numpy as np
import pytest

import levelhead as lh
from levelhead.types import DataError

MIXED = np.random.default_rng(0).integers(0, 2, 40)
SOME = [0, 1, 1, 0, 1]


def given(logits, labels):
    return SimpleNamespace(predictions=logits, label_ids=np.asarray(labels))


@pytest.mark.parametrize("seed", range(6))
def test_values_are_fairlearns(seed):
    draw = np.random.default_rng(seed)
    labels, chosen, groups = draw.integers(0, 2, 400), draw.integers(0, 2, 400), draw.choice(["a", "b", "c"], 400)
    logits = np.stack([np.zeros(400), 2.0 * chosen - 1], 1)
    found = lh.gap_metrics(groups, labels=labels)(given(logits, labels))
    for metric, function in {
        "demographic_parity": theirs.demographic_parity_difference,
        "equal_opportunity": theirs.equal_opportunity_difference,
        "equalized_odds_worst": theirs.equalized_odds_difference,
    }.items():
        expected = function(labels, chosen, sensitive_features=groups)
        assert found[metric] == pytest.approx(expected, abs=1e-12)
        assert found[f"{metric}_low"] <= found[metric] <= found[f"{metric}_high"]
        assert lh.gap_score(labels, chosen, groups=groups, metric=metric) == pytest.approx(expected, abs=1e-12)
    assert found["accuracy"] == pytest.approx(np.mean(labels == chosen))


def test_a_search_of_scikit_learn_takes_it_as_a_score():
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import GridSearchCV

    draw = np.random.default_rng(0)
    inputs, groups = draw.normal(size=(900, 3)), draw.choice(["a", "b"], 900)
    labels = (inputs[:, 0] + (groups == "a") + draw.normal(size=900) > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(lh.gap_score, greater_is_better=False).set_score_request(groups=True)
        search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, scoring=scorer, cv=3)
        search.fit(inputs, labels, groups=groups)
    assert np.all(search.cv_results_["mean_test_score"] <= 0)


def test_what_trainer_gives_is_read():
    logits = np.eye(2)[MIXED]
    groups = {"sex": np.where(MIXED, "f", "m"), "site": [None, *"ab" * 19, "a"]}
    watch = lh.gap_metrics(groups, labels=MIXED, metrics=["demographic_parity"])
    assert watch(given(logits, MIXED))["sex_demographic_parity"] == 1.0
    assert set(watch(given((logits, np.ones((40, 3))), MIXED))) == {
        "accuracy",
        *(f"{name}_demographic_parity{end}" for name in ("sex", "site") for end in ("", "_low", "_high")),
    }
    assert watch(given(logits.argmax(1), MIXED))["sex_demographic_parity"] == 1.0
    unlabelled = np.where(MIXED, 1, -100)
    watch = lh.gap_metrics(groups, labels=unlabelled, metrics=["demographic_parity"])
    assert watch(given(logits, unlabelled))["accuracy"] == 1.0


@pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds", "equalized_odds_worst"])
def test_a_gap_that_cannot_be_computed_is_not_0(metric):
    """One class in a small fold, and another one predicted, is what a fold can be."""
    one, groups = [0] * 40, list("ab") * 20
    assert math.isnan(lh.gap_score(one, one, groups=groups, metric=metric))
    assert math.isnan(lh.gap_score(["no"] * 40, ["yes"] * 40, groups=groups, metric=metric))
    assert lh.gap_score(one, one, groups=groups, metric="demographic_parity") == 0
    assert math.isnan(lh.gap_score([1, 0], [1, 0], groups=["a", "b"], metric=metric))
    assert math.isnan(lh.gap_score([1, 0], [1, 0], groups=[None, None], metric=metric))
    found = lh.gap_metrics(["a"] * 40, labels=MIXED)(given(np.eye(2)[MIXED], MIXED))
    assert found["accuracy"] == 1.0
    assert math.isnan(found["demographic_parity"])
    assert math.isnan(found["demographic_parity_low"])


def watched(logits, labels):
    return lh.gap_metrics(["a"] * 5, labels=SOME)(given(logits, labels))


def test_a_trainer_logs_gaps(tmp_path):
    import torch
    from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8, "patch_size": 4}
    rows = [{"pixel_values": torch.randn(3, 8, 8) + at, "labels": at} for at in MIXED.tolist() * 2]
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False}
    sizes = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16, "dataloader_drop_last": True}
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=1, eval_strategy="epoch", use_cpu=True, **quiet, **sizes
    )
    model = lh.attach(ViTForImageClassification(ViTConfig(**size)))
    labels, groups = MIXED[:32], np.array(["a", "b", "b", "a"] * 8)
    watch = lh.gap_metrics(groups, labels=labels)
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:32], compute_metrics=watch)
    trainer.train()
    logged = next(one for one in trainer.state.log_history if "eval_accuracy" in one)
    assert 0 <= logged["eval_demographic_parity_low"] <= logged["eval_demographic_parity"] <= 1
    for other in (rows[8:40], {"first": rows[:32], "other": rows[8:40]}):
        with pytest.raises(DataError, match="labels are not those that gap_metrics was given"):
            trainer.evaluate(other)
    trainer.compute_metrics = lh.gap_metrics(["a", "b"] * 20, labels=MIXED)
    with pytest.raises(DataError, match=r"32 rows are not the 40 that .* dataloader_drop_last=True"):
        trainer.evaluate(rows[:40])
    trainer.args.dataloader_drop_last = False
    assert "eval_accuracy" in trainer.evaluate(rows[:40])
