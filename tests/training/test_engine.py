from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from kinds import KINDS
from levelhead.attention.attach import is_debiased
from levelhead.methods import METHODS, Method, Stage
from levelhead.methods.dam import DAM
from levelhead.methods.dro import DRO
from levelhead.methods.erm import ERM
from levelhead.methods.fit import fit
from levelhead.methods.jtt import JTT
from levelhead.methods.kd import KD
from levelhead.methods.lff import LfF
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.storage import load_tensors, save_tensors, write_atomically, write_text
from levelhead.training.checkpoint import forget_epochs, forget_progress
from levelhead.training.config import TrainConfig
from levelhead.training.lab import BUCKET_WINDOW, Lab, bucketed, predict_logits
from levelhead.training.loop import rescales
from levelhead.training.select import FOR_ANY_METHOD, SELECTORS
from levelhead.training.weights import load_trained_state, trained_state
from levelhead.types import Batch, DataError, LevelheadError
from tiny import make_examples, make_texts, slow_but, tiny_bert, tiny_vit, told_groups

QUICK: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "device": "cpu",
    "log_every": 1,
}


NETWORK = ("new_model", "groups", "known_groups", "people", "validation_groups", "train", "validation", "seed")


def make_lab(folder: Path | None = None, progress: Any = None, **options: Any) -> Lab:
    """A lab of noise pictures and a tiny network; ``options`` are those of the lab or of its training."""
    own = {name: options.pop(name) for name in NETWORK if name in options}
    given = {"new_model": tiny_vit, "train": make_examples(50), "validation": make_examples(20, seed=1), "seed": 3}
    told = {"progress": progress} if progress else {}
    return Lab(**(given | own), config=TrainConfig(**{**QUICK, **options}), folder=folder, **told)  # type: ignore[arg-type]


TEXTS = {"new_model": tiny_bert, "train": make_texts(50), "validation": make_texts(20, seed=1), "batch_size": 7}


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


class Killed(Exception):  # noqa: N818
    pass


def killer(at_step: int) -> Any:
    def progress(stage: str, done: int, total: int, text: str) -> None:
        if done == at_step:
            raise Killed

    return progress


def test_passes_are_counted_in_units_of_the_network() -> None:
    labs = {name: make_lab(epochs=2) for name in ("erm", "lff", "kd")}
    size = sum(parameter.numel() for parameter in fit(ERM(), labs["erm"]).parameters())
    fit(LfF(), labs["lff"])
    fit(KD(teacher_layers=2, teacher_epochs=2), labs["kd"])
    rows = 2 * 48 * size  # the incomplete batch of 50 rows is left out
    assert labs["erm"].work.forward == labs["erm"].work.backward == rows
    assert labs["lff"].work.forward == labs["lff"].work.backward == 2 * rows
    assert labs["kd"].work.backward == 2 * rows
    assert labs["kd"].work.forward == 2 * rows + 50 * size  # the teacher is asked once


def test_repeated_rows_make_an_epoch_longer() -> None:
    lab = make_lab(epochs=1)
    model = lab.new_model()
    lab.train(
        Stage(WeightedCrossEntropy(model), rows=torch.cat([torch.arange(50), torch.zeros(30, dtype=torch.int64)]))
    )
    assert lab.steps == 5
    order = lab._order(Stage(WeightedCrossEntropy(model), sampling=(lab.labels == 1).double()), 0, 0)
    assert len(order) == 50
    assert (lab.labels[order] == 1).all()


def test_only_the_kept_network_is_debiased() -> None:
    lab = make_lab()
    (stage,) = DAM(base=LfF()).stages(lab)
    networks = [stage.objective.model, stage.objective.task.biased, lab.new_model()]
    assert [is_debiased(network) for network in networks] == [True, False, False]  # type: ignore[arg-type]


def half_frozen() -> nn.Module:
    """A network whose embeddings and first layer are always the same and never train."""
    model = tiny_vit()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = tiny_vit().vit
    model.vit = parts
    model.vit.requires_grad_(False)
    return model


FROZEN: dict[str, Any] = {"new_model": half_frozen, "keep_epochs": True}
OTHER_ROADS: dict[str, tuple[Method, dict[str, Any]]] = {
    "buckets": (ERM(), {**TEXTS, "length_bucketing": True}),
    "frozen": (ERM(), FROZEN),
}


@pytest.mark.parametrize(
    "name",
    slow_but(("erm", "dam", "lff", "dam+jtt", "jtt weights", *OTHER_ROADS), [*KINDS, *OTHER_ROADS], pytest.mark.long),
)
def test_a_run_killed_twice_ends_in_the_same_weights(name: str, tmp_path: Path) -> None:
    method, training = OTHER_ROADS[name] if name in OTHER_ROADS else (KINDS[name], {})
    options: dict[str, Any] = {"checkpoint_seconds": 0, **told_groups(method), **training}
    reference = weights(fit(method, make_lab(tmp_path / "a", **options)))
    for killed_at in (3, 5) if name == "afr" else (4, 9):  # which has fewer steps, with rows held out
        with pytest.raises(Killed):
            fit(method, make_lab(tmp_path / "b", progress=killer(killed_at), **options))
        torch.manual_seed(99)  # what happened meanwhile must not matter
        torch.set_num_threads(2)
    resumed = make_lab(tmp_path / "b", **options)
    try:
        assert_identical(weights(fit(method, resumed)), reference)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)

    def losses(folder: Path) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

    assert losses(tmp_path / "b") == losses(tmp_path / "a")


def overfitting_lab(folder: Path | None = None, progress: Any = None, **options: Any) -> Lab:
    """A lab whose validation labels are drawn: the loss on them is lowest after the second of twelve epochs."""
    lab = make_lab(folder, progress, epochs=12, **options)
    labels = torch.randint(2, (20,), generator=torch.Generator().manual_seed(2))
    lab._validation = replace(lab._validation, labels=labels)
    return lab


@pytest.mark.parametrize("name", ["dam", "jtt weights"])
def test_patience_stops_after_the_best_epoch_with_the_same_weights(name: str, tmp_path: Path) -> None:
    """The scout of JTT, which trains one epoch, is left alone."""
    method = KINDS[name]
    whole, short = overfitting_lab(), overfitting_lab(patience=4)
    reference = weights(fit(method, whole))
    assert_identical(weights(fit(method, short)), reference)
    assert short.history == whole.history[: len(short.history)]
    last = [row for row in whole.history if row["stage"] == whole.history[-1]["stage"]]
    best = max(last, key=lambda row: row["val_loss"])["epoch"]
    assert len(last) == 12
    assert 0 <= best < 6
    assert short.history[-1]["epoch"] == best + 4
    assert short.steps == whole.steps - 3 * (12 - best - 5)
    with pytest.raises(Killed):
        fit(method, overfitting_lab(tmp_path, killer(8), patience=4, checkpoint_seconds=0))
    resumed = overfitting_lab(tmp_path, patience=4, checkpoint_seconds=0)
    assert_identical(weights(fit(method, resumed)), reference)
    assert resumed.steps == short.steps
    again = overfitting_lab(tmp_path, patience=4)  # a finished stage is loaded, and not trained on
    assert_identical(weights(fit(method, again)), reference)


def test_what_takes_long_between_two_stages_is_not_done_twice(tmp_path: Path) -> None:
    """DSA replaces a patch of every picture before its second stage; kill -9 must not cost an hour of that."""
    method = KINDS["dsa"]
    options: dict[str, Any] = {"checkpoint_seconds": 0, **told_groups(method)}
    reference = make_lab(tmp_path / "a", **options)
    expected = weights(fit(method, reference))

    def told(stop: tuple[str, int] | None) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []

        def progress(what: str, done: int, total: int, text: str) -> None:
            if what == "replacing patches":
                seen.append((what, done))
            if (what, done) == stop:
                raise Killed

        lab = make_lab(tmp_path / "b", progress=progress, **options)
        if stop is None:
            assert_identical(weights(fit(method, lab)), expected)
            assert lab.work == reference.work
        else:
            with pytest.raises(Killed):
                fit(method, lab)
        return seen

    assert [done for _, done in told(("replacing patches", 3))] == [1, 2, 3]
    assert next(done for _, done in told(("stage 2", 2))) == 3, "two batches were kept"
    assert told(None) == [], "the second stage continues at once"
    assert list((tmp_path / "b" / "checkpoints").glob("answers-*"))
    forget_progress(tmp_path / "b")
    assert not list((tmp_path / "b" / "checkpoints").glob("answers-*"))


def test_a_run_that_is_resumed_on_another_device_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Killed):
        fit(ERM(), make_lab(tmp_path, progress=killer(4)))
    file = tmp_path / "checkpoints" / "stage-0.safetensors"
    tensors, about = load_tensors(file)
    fit(ERM(), make_lab(tmp_path))
    assert "written on" not in caplog.text
    shutil.rmtree(tmp_path / "checkpoints")
    save_tensors(file, tensors, {**about, "position": {**about["position"], "device": "NVIDIA H100"}})
    fit(ERM(), make_lab(tmp_path))
    assert "was written on NVIDIA H100; this is cpu." in caplog.text


def test_a_killed_run_without_a_checkpoint_starts_again_and_a_finished_one_is_loaded(tmp_path: Path) -> None:
    reference = weights(fit(ERM(), make_lab()))
    with pytest.raises(Killed):
        fit(ERM(), make_lab(tmp_path, progress=killer(4)))
    assert_identical(weights(fit(ERM(), make_lab(tmp_path))), reference)
    assert_identical(weights(fit(ERM(), make_lab(tmp_path, progress=killer(1)))), reference)


def test_a_training_on_the_cpu_leaves_a_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise RuntimeError("all CUDA-capable devices are busy or unavailable")

    lab = make_lab(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("get_rng_state", "set_rng_state"):
        monkeypatch.setattr(torch.cuda, name, busy)
    fit(ERM(), lab)


class Explodes(WeightedCrossEntropy):
    """Its loss is NaN at the fifth step, or what ``times`` says at another."""

    calls, at, times = 0, 5, math.nan

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        loss, logs = super().forward(batch)
        return loss * (self.times if self.calls == self.at else 1.0), logs  # type: ignore[operator]


class SteepAtTheEnd(WeightedCrossEntropy):
    """Its loss is finite and its derivative is not, from the third step on; ``kept`` are the weights before a step."""

    calls = 0
    kept: ClassVar[list[Any]] = []

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        self.kept[:] = [self.model, weights(self.model)]
        loss, logs = super().forward(batch)
        return loss + (0.0 if self.calls < 3 else (loss - loss.detach()).sqrt()), logs  # type: ignore[operator]


class Infinite(Explodes):
    """Its loss is infinite at once."""

    at, times = 1, math.inf


@dataclass(frozen=True)
class Trains(Method):
    """One stage with an objective of the test's."""

    objective: type[Objective] = WeightedCrossEntropy
    validation_parts: Tensor | None = None
    summary = "one stage"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        yield Stage(self.objective(lab.new_model()), validation_parts=self.validation_parts)  # type: ignore[call-arg]


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_gradient_that_is_not_finite_stops_the_run_before_the_weights_change(clip: float | None) -> None:
    with pytest.raises(LevelheadError, match=r"gradient's norm is (nan|inf) at step 2 \("):
        fit(Trains(SteepAtTheEnd), make_lab(gradient_clip=clip))
    model, before = SteepAtTheEnd.kept
    assert_identical(weights(model), before)


@pytest.mark.parametrize("rate", [1e30, 1e20])
@pytest.mark.parametrize("kind", ["erm", "dam"])
def test_weights_that_are_not_finite_stop_the_run_at_the_step_that_made_them(
    rate: float, kind: str, tmp_path: Path
) -> None:
    done: list[int] = []
    lab = make_lab(tmp_path, learning_rate=rate, epochs=1, progress=lambda *told: done.append(told[1]))
    with pytest.raises(LevelheadError, match=r"weights' norm is (inf|nan) after step 0 \("):
        fit(METHODS[kind](), lab)
    assert not done
    tensors, metadata = load_tensors(tmp_path / "checkpoints" / "stage-0.safetensors")
    assert metadata["position"]["step"] == 0
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values() if tensor.is_floating_point())


def test_finite_weights_that_predict_nothing_are_not_kept(tmp_path: Path) -> None:
    """One step an epoch, so that no loss shows what became of the network."""
    with pytest.raises(LevelheadError, match="the network's logits on the validation"):
        fit(ERM(), make_lab(tmp_path, learning_rate=1e12, epochs=1, batch_size=50))
    assert not (tmp_path / "checkpoints" / "stage-0-best.safetensors").exists()


class Scaler:
    """What fp16 has: an overflow of the loss it scaled is its own, until it scales no more."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def get_scale(self) -> float:
        return self.scale


def test_an_overflow_that_comes_from_scaling_for_fp16_is_left_to_the_scaler() -> None:
    assert not rescales(make_lab().accelerator.scaler)
    assert rescales(Scaler(2.0))
    assert not rescales(Scaler(1.0))


def test_the_log_has_the_learning_rate_of_the_step_it_is_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(ERM(), make_lab(tmp_path, epochs=2, learning_rate=0.1, warmup_steps=4, log_every=1))
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if "learning_rate" in row]
    assert rates[:5] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    fit(ERM(), make_lab(warmup_steps=1000))
    assert "train.warmup_steps is 1000: it never reaches its learning rate" in caplog.text
    fit(ERM(), make_lab(epochs=1, learning_rate=1e-30, weight_decay=1e20))  # a step that a float32 holds


def test_dro_dual_learns_from_a_batch_of_equal_losses() -> None:
    def constant() -> nn.Module:
        model = tiny_vit()
        nn.init.zeros_(model.classifier.weight)
        return model

    fit(DRO(variant="dual", alpha=0.05), make_lab(new_model=constant, epochs=2))


@dataclass(frozen=True)
class Peeking(Method):
    summary = "looks at groups without saying so"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        yield Stage(WeightedCrossEntropy(lab.new_model()), groups=lab.groups)


class Recorder(WeightedCrossEntropy):
    """Keeps its batches."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.seen: list[Batch] = []

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        self.seen.append(batch)
        return super().forward(batch)  # type: ignore[return-value]


@pytest.mark.parametrize("groups", [None, torch.arange(50) % 3], ids=["hidden", "declared"])
def test_batches_hold_positions_weights_and_no_group_but_where_it_is_declared(groups: Tensor | None) -> None:
    lab = make_lab(groups=groups)
    objective = Recorder(lab.new_model())
    lab.train(Stage(objective, epochs=1, weights=torch.arange(50.0), groups=groups))
    index = torch.cat([batch.index for batch in objective.seen])
    assert len(index) == len(index.unique()) == 48
    for batch in objective.seen:
        assert batch.group is None if groups is None else torch.equal(batch.group, groups[batch.index])
        assert torch.equal(batch.weight, batch.index.float())
        assert torch.equal(batch.labels, lab.labels[batch.index])


@pytest.mark.parametrize("name", SELECTORS)
def test_the_kept_model_is_the_one_the_selector_likes_best(name: str) -> None:
    selector = SELECTORS[name]
    groups = torch.arange(20) % 4 // 2
    seen = groups if selector.uses_groups else None
    lab = make_lab(validation_groups=seen, select=name, epochs=4, learning_rate=2e-2)
    model = fit(Trains(validation_parts=groups if selector.uses_parts else None), lab)
    validation = make_examples(20, seed=1)
    with torch.no_grad():
        logits = model(**validation.inputs.batch(torch.arange(20))).logits
    if name != "last":
        best = max(row[name] for row in lab.history)
        assert selector.score(logits, validation.labels, groups) == pytest.approx(best, abs=1e-6)
    assert selector.uses_groups == name.startswith("ORACLE")


def test_label_only_selectors_do_not_look_at_groups() -> None:
    logits, labels = torch.randn(30, 2), torch.arange(30) % 2
    for name in FOR_ANY_METHOD:
        assert SELECTORS[name].score(logits, labels, None) == SELECTORS[name].score(logits, labels, torch.zeros(30))


def test_the_worst_part_is_that_with_the_lowest_accuracy() -> None:
    logits, labels = torch.eye(2)[torch.tensor([0, 0, 1, 1, 0])], torch.tensor([0, 0, 0, 1, 1])
    parts = torch.tensor([0, 0, 4, 2, 2])
    assert SELECTORS["val_worst_inferred"].score(logits, labels, parts) == 0
    assert SELECTORS["val_worst_inferred"].score(logits, labels, parts % 4) == 0.5


@pytest.mark.parametrize("name", ["xrm", "george"])
def test_a_method_that_infers_parts_can(name: str) -> None:
    method, lab = KINDS[name], make_lab(select="val_worst_inferred")
    fit(method, lab)
    assert [row["stage"] for row in lab.history if "val_worst_inferred" in row] == [1] * 3
    assert DAM(base=method).infers_parts


def test_the_cosine_schedule_warms_up_and_ends_at_zero() -> None:
    config = TrainConfig(schedule="cosine", warmup_steps=4)
    factors = [config.learning_rate_factor(step, 20) for step in range(21)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4] == 1.0
    assert factors[20] == pytest.approx(0.0)
    assert factors[4:] == sorted(factors[4:], reverse=True)


def test_clipping_bounds_the_step() -> None:
    plain, clipped = (weights(fit(ERM(), make_lab(epochs=1, gradient_clip=clip))) for clip in (None, 1e-6))
    assert any(not torch.equal(plain[name], clipped[name]) for name in plain)


def test_storage_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_text(file, "old")

    def fails(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(file, fails)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_checkpoints_hold_no_pickle(tmp_path: Path) -> None:
    fit(ERM(), make_lab(tmp_path, checkpoint_seconds=0))
    assert {path.suffix for path in (tmp_path / "checkpoints").iterdir()} == {".safetensors"}
    tensors, metadata = load_tensors(tmp_path / "checkpoints" / "stage-0.safetensors")
    assert metadata["position"]["finished"]
    assert "generator.cpu" in tensors


def padding(lengths: Tensor, order: Tensor, size: int) -> int:
    batches = lengths[order[: len(order) // size * size]].view(-1, size)
    return int((batches.amax(dim=1, keepdim=True) - batches).sum())


def test_length_bucketing_changes_the_neighbours_and_nothing_else() -> None:
    lab, plain = make_lab(**TEXTS, length_bucketing=True), make_lab(**TEXTS)
    stage = Stage(WeightedCrossEntropy(lab.new_model()))
    lengths = make_texts(50).inputs.lengths
    assert lengths is not None
    for epoch in range(3):
        order, unsorted = lab._order(stage, 0, epoch), plain._order(stage, 0, epoch)
        assert len(unsorted) == 50
        assert sorted(order.tolist()) == sorted(unsorted[:49].tolist())
        assert padding(lengths, order, 7) < padding(lengths, unsorted, 7) / 2
        longest = lengths[order].view(-1, 7).amax(dim=1)
        assert not torch.equal(longest, longest.sort().values)
        assert torch.equal(order, lab._order(stage, 0, epoch))
    assert not torch.equal(lab._order(stage, 0, 0), lab._order(stage, 0, 1))
    repeated = Stage(stage.objective, rows=torch.cat([torch.arange(50), torch.full((30,), 4)]))
    for other in (repeated, Stage(stage.objective, sampling=(lab.labels == 1).double())):  # which it keeps
        order, unsorted = lab._order(other, 0, 0), plain._order(other, 0, 0)
        assert sorted(order.tolist()) == sorted(unsorted[: len(unsorted) // 7 * 7].tolist())


def test_windows_keep_far_rows_apart() -> None:
    count = 3 * BUCKET_WINDOW * 2
    lengths = torch.arange(count).flip(0)
    order = bucketed(torch.arange(count), lengths, 2, torch.Generator().manual_seed(0))
    assert set(lengths[order].view(-1, 2).diff(dim=1).abs().flatten().tolist()) == {1}
    falling = torch.cat([torch.arange(0, count, 2), torch.arange(1, count, 2)])  # sorted as one they would pair up
    apart = bucketed(falling, lengths, 2, torch.Generator().manual_seed(0))
    assert set(lengths[apart].view(-1, 2).diff(dim=1).abs().flatten().tolist()) == {2}


def test_bucketing_debiased_attention_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    fit(ERM(), make_lab(**TEXTS, length_bucketing=True, max_steps=1))
    fit(DAM(), make_lab(**TEXTS, max_steps=1))
    assert "statistics of one length" not in caplog.text
    fit(DAM(), make_lab(**TEXTS, length_bucketing=True, max_steps=1))
    assert "statistics of one length alone" in caplog.text


def test_a_frozen_part_is_not_counted_as_trained() -> None:
    lab = make_lab(new_model=half_frozen)
    model = fit(ERM(), lab)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert lab.work.backward / lab.work.forward == pytest.approx(trained / sum(p.numel() for p in model.parameters()))


def test_predictions_come_in_the_order_of_the_rows() -> None:
    examples, model = make_texts(50), tiny_bert().eval()
    seen: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    found = predict_logits(model, examples.inputs, 8, torch.device("cpu"))
    assert seen == sorted(seen, reverse=True)
    with torch.no_grad():
        alone = torch.cat([model(**examples.inputs.batch(torch.tensor([row]))).logits for row in range(50)])
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


def test_checkpoints_hold_what_is_trained(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit(ERM(), make_lab(tmp_path, killer(5), **FROZEN, checkpoint_seconds=0))
    head = {"classifier.weight", "classifier.bias"}
    assert set(load_tensors(tmp_path / "epochs/stage-0-epoch-0.safetensors")[0]) == head
    assert not (tmp_path / "checkpoints/stage-0-best.safetensors").exists(), "it is one of the epochs"
    names = {name for name in load_tensors(tmp_path / "checkpoints/stage-0.safetensors")[0] if "objective" in name}
    assert names == {f"objective.model.{name}" for name in head}


def test_epochs_are_kept_of_the_last_stage_alone(tmp_path: Path) -> None:
    fit(JTT(identification_epochs=2), make_lab(tmp_path, keep_epochs=True))
    kept = {file.name for file in (tmp_path / "epochs").iterdir()}
    assert kept == {f"stage-1-epoch-{epoch}.safetensors" for epoch in range(QUICK["epochs"])}
    forget_epochs(tmp_path)
    forget_epochs(tmp_path)
    assert not list(tmp_path.glob("*epochs*"))


def test_epochs_that_will_not_fit_on_the_disk_are_refused_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(DataError, match=r"(?s)keeps 3 epochs of .* MiB in .*and 0\.0 MiB are free\. Make room"):
        fit(ERM(), make_lab(tmp_path, keep_epochs=True))
    assert len(list((tmp_path / "epochs").iterdir())) == 1


def test_buffers_and_tied_weights_are_kept() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    assert set(trained_state(model)) == {"0.weight", "2.weight", "1.running_mean", "1.running_var",
                                         "1.num_batches_tracked"}  # fmt: skip
    model[0].requires_grad_(False)
    assert not {"0.weight", "2.weight"} & set(trained_state(model))


def test_loading_demands_exactly_what_is_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    before = weights(model)
    wanted = {name: before[name] + 1 for name in ("1.weight", "1.bias")}
    for tensors, message in (
        ({"1.weight": wanted["1.weight"]}, r"File x does not fit this model: it lacks 1\.bias\. It was"),
        (wanted | {"0.weight": torch.ones(2, 2)}, r"it has besides 0\.weight"),
        (wanted | {"1.bias": torch.ones(3)}, r"it has in another shape 1\.bias"),
    ):
        with pytest.raises(DataError, match=message):
            load_trained_state(model, tensors, "File x")
        assert_identical(weights(model), before)
    load_trained_state(model, wanted)
    assert_identical(weights(model), before | wanted)


def test_where_no_epoch_has_a_score_the_last_one_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Each group is of one class, so that no epoch has a gap."""
    lab = make_lab(select="ORACLE_val_equalized_odds", validation_groups=torch.arange(20) % 2)
    logits = lab.logits(fit(ERM(), lab))
    assert "ORACLE_val_equalized_odds is undefined in every epoch: the last one is kept." in caplog.text
    assert torch.equal(logits, lab.logits(fit(ERM(), again := make_lab(select="last"))))
    assert len(again.history) == 3
