"""What is said of a number type that this processor computes slowly."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from accelerate.state import AcceleratorState
from test_engine import make_lab

from levelhead.methods import DAM
from levelhead.methods.fit import fit
from levelhead.training import processes
from levelhead.training.config import TrainConfig


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    def forget() -> None:
        processes.warn_of_slow_bfloat16.cache_clear()
        AcceleratorState._reset_state()  # which else keeps the first precision of this process

    forget()
    yield
    forget()


@pytest.mark.parametrize(("slowdown", "warnings"), [(45.6, 1), (1.1, 0), (0.5, 0)])
def test_bfloat16_without_instructions_is_warned_of_once(
    slowdown: float, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "bfloat16_slowdown", lambda: slowdown)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            processes.make_accelerator(TrainConfig(device="cpu", precision="bf16"))
    assert len(caplog.messages) == warnings
    for message in caplog.messages:
        assert "46 times as slowly" in message
        assert "--set train.precision=no" in message


def test_nothing_is_measured_for_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "bfloat16_slowdown", lambda: pytest.fail("measured"))
    processes.make_accelerator(TrainConfig(device="cpu"))


def test_the_slowdown_is_a_ratio_and_measured_once() -> None:
    first = processes.bfloat16_slowdown()
    assert first > 0
    assert processes.bfloat16_slowdown() == first


def test_mixed_precision_trains() -> None:
    lab = make_lab(precision="bf16", epochs=8)
    model = fit(DAM(), lab)
    assert (lab.logits(model).argmax(-1) == lab.labels).double().mean() > 0.9
