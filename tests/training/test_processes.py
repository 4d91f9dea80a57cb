"""What is said of a number type that this processor computes slowly."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from accelerate.state import AcceleratorState
from test_engine import make_lab

from levelhead.methods.dam import DAM
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


def test_bfloat16_on_a_processor_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        processes.make_accelerator(TrainConfig(device="cpu"))
        assert not caplog.messages
        AcceleratorState._reset_state()
        for _ in range(2):
            processes.make_accelerator(TrainConfig(device="cpu", precision="bf16"))
    (message,) = caplog.messages
    assert "--set train.precision=no" in message


def test_mixed_precision_trains() -> None:
    lab = make_lab(precision="bf16", epochs=8)
    model = fit(DAM(), lab)
    assert (lab.logits(model).argmax(-1) == lab.labels).double().mean() > 0.9
