"""Odd values for every argument of every public function: each call ends in a result or in a sentence of levelhead's.

The only errors accepted are levelhead's own, and those of Python, NumPy and torch on a value of a wrong type.
"""

from __future__ import annotations

import inspect
import math
import random
import time
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from shares import cases
from torch import nn
from transformers import ViTConfig, ViTForImageClassification, ViTModel

import levelhead as lh
from levelhead import metrics
from levelhead.auditing.door import Options
from levelhead.auditing.postprocess import fit_rule
from levelhead.auditing.unknown import privacy
from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics.ranking import area_under_roc
from levelhead.types import LevelheadError

pytestmark = pytest.mark.slow

ROWS = 12
LABEL = np.arange(ROWS) % 2
PREDICTION = np.where(np.arange(ROWS) % 5 == 0, 1 - LABEL, LABEL)
SEX = np.where(np.arange(ROWS) % 3 == 0, "women", "men")
SCORE = np.clip(0.2 + 0.5 * LABEL + 0.2 * np.sin(np.arange(ROWS)), 0.01, 0.99)
LONGEST_SECONDS = 10


class Hostile:
    """Raises wherever it is looked at."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("no array of this")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("nothing equals this")

    def __hash__(self) -> int:
        raise RuntimeError("no hash of this")

    def __repr__(self) -> str:
        raise RuntimeError("nothing shows this")

    def __len__(self) -> int:
        raise RuntimeError("no length of this")


def raising() -> Any:
    yield 0
    raise RuntimeError("the generator broke")


def frame_of_two() -> pd.DataFrame:
    return pd.DataFrame(np.stack([LABEL, LABEL], 1), columns=["a", "a"])


VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**63": lambda: 2**63,
    "10**5000": lambda: 10**5000,
    "0.5": lambda: 0.5,
    "NaN": lambda: math.nan,
    "inf": lambda: math.inf,
    "complex": lambda: 1 + 2j,
    "Decimal": lambda: Decimal("0.5"),
    "signalling NaN": lambda: Decimal("sNaN"),
    "Fraction": lambda: Fraction(1, 2),
    "empty text": lambda: "",
    "text": lambda: "odd",
    "surrogate": lambda: "\udc80\ud800",
    "long text": lambda: "x" * 100_000,
    "bytes": lambda: b"\xff\x00",
    "path": lambda: PurePosixPath("nowhere"),
    "datetime": lambda: datetime(2020, 1, 2, tzinfo=UTC),
    "NA": lambda: pd.NA,
    "NaT": lambda: pd.NaT,
    "Ellipsis": lambda: ...,
    "function": lambda: print,
    "object": object,
    "hostile": Hostile,
    "empty list": list,
    "empty dict": dict,
    "set": lambda: {1, 2},
    "dict": lambda: {"a": 1, 2: "b"},
    "range": lambda: range(ROWS),
    "generator": raising,
    "iterator": lambda: iter([0, 1]),
    "ragged": lambda: [[1], [2, 3]],
    "list of dicts": lambda: [{"a": 1}] * ROWS,
    "mixed": lambda: [1, "1", None, 2.5, b"x", True] * (ROWS // 6),
    "huge integers": lambda: [10**400, 2**64, -(2**70)] * (ROWS // 3),
    "numbers as texts": lambda: ["0.5", "1e999", "nan"] * (ROWS // 3),
    "surrogates": lambda: ["\udc80", "a"] * (ROWS // 2),
    "decimals": lambda: [Decimal("0.1"), Decimal("NaN")] * (ROWS // 2),
    "dates": lambda: [date(2020, 1, 1 + row) for row in range(ROWS)],
    "0-d": lambda: np.array(0.5),
    "empty array": lambda: np.empty(0),
    "(n, 2)": lambda: np.stack([1 - SCORE, SCORE], 1),
    "one short": lambda: LABEL[:-1],
    "NaNs": lambda: np.full(ROWS, math.nan),
    "infinite": lambda: np.where(LABEL, math.inf, -math.inf),
    "complex array": lambda: SCORE + 1j,
    "objects": lambda: np.array([object() for _ in range(ROWS)], object),
    "hostile objects": lambda: [Hostile() for _ in range(ROWS)],
    "records": lambda: np.zeros(ROWS, [("a", "i4"), ("b", "f8")]),
    "datetimes": lambda: np.arange(ROWS).astype("datetime64[s]"),
    "all masked": lambda: np.ma.masked_all(ROWS),
    "read only": lambda: np.broadcast_to(np.int8(1), ROWS),
    "grad": lambda: torch.from_numpy(SCORE).requires_grad_(),
    "bf16": lambda: torch.from_numpy(SCORE).bfloat16(),
    "0-d tensor": lambda: torch.tensor(1.0, requires_grad=True),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "duplicated names": frame_of_two,
    "frame": lambda: pd.DataFrame({"a": LABEL, 1: SCORE}),
    "empty frame": pd.DataFrame,
    "series with another index": lambda: pd.Series(LABEL, [f"r{row}" for row in range(ROWS)]),
    "nullable": lambda: pd.Series([1, None] * (ROWS // 2), dtype="Int64"),
    "categorical": lambda: pd.Categorical(SEX),
    "intervals": lambda: pd.Series(pd.interval_range(0, ROWS)),
    "arrow": lambda: pyarrow.array([[1], [2]] * (ROWS // 2)),
    "arrow table": lambda: pyarrow.table([LABEL, LABEL], names=["a", "a"]),
    "module of torch": lambda: nn.Linear(2, 2),
    "NumPy scalar": lambda: np.float32(0.25),
}


def tiny() -> ViTForImageClassification:
    torch.manual_seed(0)
    return ViTForImageClassification(CONFIG)


CONFIG = ViTConfig(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4
)
PICTURES = torch.zeros(2, 3, 8, 8)
COUNTS = metrics.Counts(np.full((2, 2, 2), 5), ("a", "b"), (0, 1))
RULE = fit_rule(SCORE, SEX, metric="demographic_parity")


def attached() -> Any:
    return lh.attach(tiny(), lh.DebiasConfig(projection_hidden=None))


def trained() -> Any:
    model = attached().train()
    model(PICTURES, labels=torch.tensor([0, 1]))
    return model


def rows_of(count: int = 6) -> list[dict[str, Any]]:
    return [{"pixel_values": PICTURES[0] + row, "labels": row % 2} for row in range(count)]


def result() -> lh.AuditResult:
    return lh.audit(LABEL, PREDICTION, sensitive_features=SEX, replicates=100, min_count=2)


OF_ROWS = {"y_true": LABEL, "y_pred": PREDICTION, "sensitive_features": SEX}
FRAME = pd.DataFrame({"y": LABEL, "p": PREDICTION, "s": SCORE, "g": SEX})
OF_FILE = {"data": "rows.csv", "label": "y", "prediction": "p", "groups": ["g"]}
CALLS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "audit": (lh.audit, lambda: {**OF_ROWS, "replicates": 100, "min_count": 2}),
    "audit of scores": (
        lh.audit, lambda: {"y_true": LABEL, "scores": SCORE, "sensitive_features": SEX, "replicates": 100},
    ),
    "audit of decisions": (
        lh.audit, lambda: {"y_true": None, "y_pred": PREDICTION, "sensitive_features": SEX, "favourable": 1},
    ),
    "audit of a ranking": (
        lh.audit, lambda: {"y_true": None, "scores": SCORE, "sensitive_features": SEX, "top": 3},
    ),
    "audit of numbers": (lh.audit, lambda: {**OF_ROWS, "y_pred": SCORE, "numbers": True}),
    "audit_table": (lh.audit_table, lambda: {**OF_FILE, "replicates": 100}),
    "audit_table of a frame": (
        lh.audit_table,
        lambda: {"data": FRAME, "prediction": "p", "groups": ["g"], "favourable": 1, "replicates": 100},
    ),
    "audit_table of a ranking": (
        lh.audit_table, lambda: {"data": "rows.csv", "score": "s", "groups": ["g"], "top": 3},
    ),
    "audit_table of numbers": (lh.audit_table, lambda: {**OF_FILE, "prediction": "s", "numbers": True}),
    "audit_table of shares": (
        lh.audit_table,
        lambda: {"data": "rows.csv", "label": "y", "prediction": "p", "shares": {"a": 0.4}, "replicates": 100},
    ),
    "audit_table of responses": (
        lh.audit_table,
        lambda: {"data": FRAME, "prediction": "p", "groups": ["g"], "randomized_response": Response(flip=0.1)},
    ),
    "audit_table of probabilities": (
        lh.audit_table,
        lambda: {"data": FRAME, "prediction": "p", "proxy_probabilities": {"a": "s"}, "replicates": 100},
    ),
    "explain": (
        lh.explain, lambda: {"data": "rows.csv", "label": "y", "score": "s", "groups": ["g"], "replicates": 100},
    ),
    "gap_score": (lh.gap_score, lambda: {"y_true": LABEL, "y_pred": PREDICTION, "groups": SEX}),
    "gap_metrics": (lh.gap_metrics, lambda: {"groups": SEX, "labels": PREDICTION}),
    "plan_audit": (lh.plan_audit, lambda: {"gap": 0.2, "rate": 0.3}),
    "privacy.randomize": (privacy.randomize, lambda: {"values": SEX, "epsilon": 1.0, "seed": 0}),
    "Response": (Response, lambda: {"flip": 0.1}),
    "fit_rule": (fit_rule, lambda: {"probability": SCORE, "group": SEX, "metric": "demographic_parity"}),
    "FittedRule.decide": (RULE.decide, lambda: {"probability": SCORE, "group": SEX}),
    "BiasRule": (
        lambda **given: lh.BiasRule(**given).fit(SCORE, LABEL, sensitive_features=SEX),
        lambda: {"metric": "demographic_parity", "delta": 0.1, "threshold": 0.4, "positive": 1, "seed": 0},
    ),
    "BiasRule.fit": (
        lh.BiasRule("demographic_parity").fit,
        lambda: {"probability": SCORE, "y": LABEL, "sensitive_features": SEX},
    ),
    "BiasRule.predict": (
        lh.BiasRule("demographic_parity").fit(SCORE, LABEL, sensitive_features=SEX).predict,
        lambda: {"probability": SCORE, "sensitive_features": SEX},
    ),
    "area_under_roc": (
        area_under_roc, lambda: {"y_true": LABEL, "group": SEX, "scores": {"a": SCORE}, "positive": 1},
    ),
    "Counts": (metrics.Counts, lambda: {"table": np.ones((1, 2, 2), int), "groups": ("a",), "classes": (0, 1)}),
    "Counts.from_rows": (
        metrics.Counts.from_rows, lambda: {"y_true": LABEL, "y_pred": PREDICTION, "group": SEX},
    ),
    "JointCounts.from_rows": (
        metrics.JointCounts.from_rows, lambda: {"y_true": LABEL, "group": SEX, "predictions": [PREDICTION]},
    ),
    "estimate": (metrics.estimate, lambda: {"counts": COUNTS, "metric": "accuracy", "replicates": 100}),
    "estimate_all": (metrics.estimate_all, lambda: {"counts": COUNTS, "replicates": 100}),
    "joint": (
        metrics.joint,
        lambda: {
            "y_true": LABEL, "group": SEX, "predictions": {"a": [PREDICTION], "b": [LABEL]}, "baseline": "a",
            "replicates": 100,
        },
    ),
    "holm": (metrics.holm, lambda: {"p_values": [0.1, 0.2]}),
    "proportion": (metrics.proportion, lambda: {"hits": 1, "rows": 3}),
    "estimate_to_dict": (metrics.estimate_to_dict, lambda: {"figure": lh.Estimate(0.5, 0.4, 0.6, 10)}),
    "Metric": (
        metrics.Metric,
        lambda: {
            "name": "n", "title": "t", "short": "sh", "heading": "h", "subject": "su", "definition": "d",
            "kind": "gap", "rates": (("selection_rate",),),
        },
    ),
    "DebiasConfig": (lh.DebiasConfig, dict),
    "NotebookOptions": (lh.NotebookOptions, dict),
    "TrainConfig": (lh.TrainConfig, dict),
    "PretrainConfig": (lh.PretrainConfig, dict),
    "QueryKeyStandardizer": (lh.QueryKeyStandardizer, lambda: {"num_heads": 2, "head_size": 4, "length": 3}),
    "DebiasedBlock": (lh.DebiasedBlock, lambda: {"hidden_size": 8, "num_heads": 2, "length": 3}),
    "attach": (lh.attach, lambda: {"model": tiny()}),
    "detach": (lh.detach, lambda: {"model": attached()}),
    "describe": (lh.describe, lambda: {"model": tiny()}),
    "readout_only": (lh.readout_only, lambda: {"model": tiny()}),
    "append_encoder": (lh.append_encoder, lambda: {"backbone": ViTModel(CONFIG), "num_labels": 2}),
    "lora_config": (lh.lora_config, lambda: {"model": attached()}),
    "alignment": (lh.alignment, lambda: {"model": trained(), "labels": torch.tensor([0, 1])}),
    "calibrate": (lh.calibrate, lambda: {"model": attached(), "loader": [{"pixel_values": PICTURES}]}),
    "from_pretrained": (lh.from_pretrained, lambda: {"path": "nowhere"}),
    "model_card": (lh.model_card, lambda: {"model": attached()}),
    "compare_models": (
        lh.compare_models,
        lambda: {"plain": tiny(), "debiased": attached(), "dataset": rows_of(), "groups": {"g": list("ababab")}},
    ),
    "inspect": (
        lh.inspect,
        lambda: {"model": tiny(), "data": rows_of(), "groups": {"g": list("ababab")}, "permutations": 19},
    ),
    "fit": (lh.fit, lambda: {"method": None, "lab": None}),
    "Lab": (
        lh.Lab,
        lambda: {"new_model": tiny, "train": None, "validation": None, "config": lh.TrainConfig(device="cpu")},
    ),
    "pretrain": (lh.pretrain, lambda: {"pictures": None, "folder": "out"}),
    "lm.Klaad": (lh.lm.Klaad, dict),
    "lm.collate": (lh.lm.collate, lambda: {"tokenizer": None, "triplets": []}),
    "lm.train_klaad": (lh.lm.train_klaad, lambda: {"model": tiny(), "tokenizer": None, "triplets": []}),
    "lm.load_klaad": (lh.lm.load_klaad, lambda: {"recipe": "nowhere.yaml"}),
    "lm.comparison_summary": (lh.lm.comparison_summary, lambda: {"sources": [Path("a"), Path("b")]}),
}  # fmt: skip
MADE_BY_OTHERS = {  # records that functions return, and what nobody calls
    "AuditResult", "Batch", "Estimate", "LevelheadError", "DebiasLog", "lm.TripletBatch", "Counts",
    "JointCounts", "JointRow", "JointTable", "gaps",
}  # fmt: skip


def clear(error: BaseException) -> bool:
    """Whether it is levelhead's, one of Python, NumPy or torch on a value of a wrong type, or of the value itself."""
    return isinstance(error, (LevelheadError, TypeError, ValueError, AttributeError, RuntimeError, InvalidOperation))


def arguments(function: Callable[..., Any], base: dict[str, Any]) -> list[str]:
    names = list(inspect.signature(function).parameters)
    names += [*Options.__annotations__, "unknown"] if function in (lh.audit, lh.audit_table) else []
    return names if "given" not in names else list(base)


def outcome(function: Callable[..., Any], given: dict[str, Any]) -> str | None:
    """Call a function; return what went wrong, or None."""
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given)
    except Exception as error:
        if not clear(error):
            return f"{type(error).__name__}: {str(error)[:150]}"
    seconds = time.process_time() - started
    return f"{seconds:.0f} seconds" if seconds > LONGEST_SECONDS else None


@pytest.mark.parametrize("name", CALLS)
def test_odd_values_end_in_a_result_or_a_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # nobody waits for a hub that is not there
    rows = {"y": LABEL, "p": PREDICTION, "g": SEX, "s": SCORE}
    pd.DataFrame(rows).to_csv("rows.csv", index=False)
    function, base = CALLS[name]
    names = [one for one in arguments(function, base()) if one not in ("audit_options", "more", "options", "progress")]
    drawn = [(argument, value) for value in VALUES for argument in names]
    random.Random(name).shuffle(drawn)
    wrong = []
    for argument, value in (drawn[at] for at in cases(len(drawn), 10)):
        if found := outcome(function, {**base(), argument: VALUES[value]()}):
            wrong.append(f"{name}({argument}={value}): {found}")
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong)


def test_every_public_function_is_called() -> None:
    public = [name for name in lh.__all__ if callable(getattr(lh, name))]
    public += [f"lm.{name}" for name in lh.lm.__all__ if callable(getattr(lh.lm, name))]
    public += [name for name in metrics.__all__ if callable(getattr(metrics, name))]
    assert set(public) - set(CALLS) - MADE_BY_OTHERS == set()
    assert MADE_BY_OTHERS & set(CALLS) <= {"Counts"}
