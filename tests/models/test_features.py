from __future__ import annotations

import copy
import json
import logging
import multiprocessing
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertModel

from levelhead.attention import DebiasConfig, append_encoder
from levelhead.data.base import Inputs, fits
from levelhead.data.texts import TokenInputs
from levelhead.models import features, features_build, features_store
from levelhead.models.features import FeatureInputs, count_bytes, feature_inputs, feature_key
from levelhead.types import DataError
from tiny import Pictures, bert_config, make_examples, make_texts, tiny_vit

ROWS = 40
BATCH = 8  # five batches, and one row that is run alone first
PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


def bert(seed: int = 0) -> BertModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertModel(bert_config(), add_pooling_layer=False)


def vit() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tiny_vit().vit


def texts(seed: int = 0) -> TokenInputs:
    inputs = make_texts(ROWS, seed).inputs
    assert isinstance(inputs, TokenInputs)
    return inputs


class Hashed(Pictures):
    def fingerprint(self) -> str:
        return str(self.pixels.sum())


def pictures() -> Hashed:
    return Hashed(make_examples(ROWS).inputs.batch(torch.arange(ROWS))["pixel_values"])


def counted(backbone: nn.Module, at: Callable[[int], object] = lambda call: None) -> list[int]:
    """Note the rows of each forward pass of a backbone, and call ``at`` with the pass's number before it."""
    rows: list[int] = []

    def note(module: nn.Module, arguments: Any, options: dict[str, Tensor]) -> None:
        at(len(rows))
        rows.append(len(next(iter(options.values()))))

    backbone.register_forward_pre_hook(note, with_kwargs=True)
    return rows


def read(inputs: Inputs | None = None, backbone: nn.Module | None = None, **options: Any) -> FeatureInputs:
    arguments = {"describe": {"backbone": "tiny", "split": "train"}, "batch_size": BATCH, **options}
    given = texts() if inputs is None else inputs
    return feature_inputs(given, bert() if backbone is None else backbone, **arguments)


def noted(backbone: nn.Module | None = None, **options: Any) -> tuple[FeatureInputs, list[int]]:
    """Read features; returns also the rows of each forward pass that it took."""
    rows = counted(backbone := backbone or bert())
    return read(backbone=backbone, **options), rows


def only(cache: Path) -> Path:
    (place,) = cache.iterdir()
    return place


def whole(inputs: FeatureInputs) -> Tensor:
    return inputs.batch(torch.arange(len(inputs)))["features"]


@pytest.mark.parametrize("kind", ["texts", "pictures"])
@pytest.mark.parametrize("training", [True, False])
def test_a_head_on_features_has_the_loss_that_it_has_on_the_backbone(cache: Path, kind: str, training: bool) -> None:
    # Without alignment, which chooses tokens: among the nearly equal ones of a network drawn at random, rounding to
    # half precision chooses others.
    inputs, backbone = (texts(), bert()) if kind == "texts" else (pictures(), vit())
    torch.manual_seed(0)
    model = append_encoder(backbone, 2, debias=DebiasConfig(alpha=0.0)).train()
    model(**inputs.batch(torch.arange(ROWS)), labels=torch.arange(ROWS) % 2)  # running statistics
    model.train(training)
    kept = read(inputs, backbone)
    labels = torch.arange(ROWS) % 2
    index = torch.randperm(ROWS)[:16]
    losses, gradients = [], []
    for source in (inputs, kept):
        copied = copy.deepcopy(model)
        loss = copied(**source.batch(index), labels=labels[index]).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append(copied.classifier.weight.grad)
    assert losses[1] == pytest.approx(losses[0], abs=5e-5)
    torch.testing.assert_close(gradients[1], gradients[0], atol=5e-4, rtol=0)


def test_batches_of_texts_hold_the_tokens_and_zeros(cache: Path) -> None:
    inputs, backbone = texts(), bert().eval()
    kept = read(inputs, backbone)
    assert torch.equal(kept.lengths, inputs.lengths)
    index = torch.tensor([7, 0, 39, 7])
    batch = kept.batch(index)
    expected = inputs.batch(index)
    assert torch.equal(batch["attention_mask"], expected["attention_mask"])
    assert batch["attention_mask"].dtype == torch.int64
    with torch.no_grad():
        hidden = backbone(**expected).last_hidden_state * expected["attention_mask"][:, :, None]
    torch.testing.assert_close(batch["features"].float(), hidden, atol=1e-3, rtol=1e-3)
    assert not batch["features"][batch["attention_mask"] == 0].any()
    assert (only(cache) / "values.bin").stat().st_size == count_bytes(inputs.lengths, 16)


def test_pictures_and_texts_of_one_length_have_no_mask(cache: Path) -> None:
    kept = read(pictures(), vit())
    assert kept.lengths is None
    batch = kept.batch(torch.tensor([3, 1]))
    assert list(batch) == ["features"]
    assert batch["features"].shape == (2, 5, 16)
    assert batch["features"].dtype == torch.float16
    same = TokenInputs({"input_ids": torch.arange(24).int()}, torch.full((4,), 6), {})
    assert list(read(same).batch(torch.tensor([3]))) == ["features"]


def test_the_second_reader_runs_no_backbone_and_sees_the_same_bits(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="levelhead")
    backbone = bert()
    backbone.encoder.eval()
    modes = [module.training for module in backbone.modules()]
    rows = counted(backbone)
    first = read(backbone=backbone)
    before = whole(first).clone()
    assert rows == [1] + [BATCH] * 5
    assert [module.training for module in backbone.modules()] == modes
    second = read(backbone=backbone)
    assert len(rows) == 6
    assert torch.equal(whole(first), whole(second))
    assert first.fingerprint() == second.fingerprint()
    first.values.zero_()  # reaches no file
    assert torch.equal(whole(read(backbone=backbone)), before)
    assert sorted(file.name for file in only(cache).iterdir()) == ["manifest.json", "values.bin"]
    assert [place.name for place in cache.iterdir()] == [only(cache).name]  # no lock, nothing unfinished
    assert only(cache).stat().st_mode & 0o077 == 0
    shutil.rmtree(cache)  # while it is read
    assert torch.equal(whole(second), before)
    assert caplog.records == []


def test_the_key_holds_all_that_decides_features_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    key = feature_key(texts(), bert())
    bert().save_pretrained(tmp_path / "elsewhere")
    loaded = BertModel.from_pretrained(tmp_path / "elsewhere", add_pooling_layer=False)
    assert feature_key(texts(), loaded) == key
    assert feature_key(texts(), bert().eval()) == key
    nudged = bert()
    with torch.no_grad():
        nudged.encoder.layer[1].output.dense.bias[3] += 1e-6
    louder = bert()
    louder.config.layer_norm_eps = 1e-5
    shorter = TokenInputs(texts().columns, texts().lengths, {"input_ids": 1})
    others = {feature_key(texts(), backbone) for backbone in (nudged, louder, nn.Sequential(bert()))}
    others |= {feature_key(inputs, bert()) for inputs in (texts(1), shorter)}
    assert len({key} | others) == 6

    class Strange(nn.Module):
        def extra_repr(self) -> str:
            return repr(lambda: None)  # shows its address

    assert feature_key(texts(), Strange()) == feature_key(texts(), Strange())


class Scaled(nn.Module):
    """A backbone whose features at token 5 are of this size."""

    def __init__(self, value: float) -> None:
        super().__init__()
        weights = torch.ones(40, 4)
        weights[5] = value
        self.table = nn.Embedding.from_pretrained(weights)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=self.table(input_ids))


@pytest.mark.parametrize("where", ["disk", "off"])
def test_values_beyond_float16_are_kept_as_bfloat16(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    if where == "off":
        monkeypatch.setenv("LEVELHEAD_CACHE", "off")
    assert read(backbone=Scaled(65504)).values.dtype == torch.float16
    assert caplog.records == []
    kept = read(backbone=Scaled(1e5))
    assert [record.getMessage() for record in caplog.records] == [
        "A feature is 1e+05, beyond float16 (6.55e+04): the features are computed again and kept as bfloat16."
    ]
    assert whole(kept).dtype == torch.bfloat16
    assert whole(kept).max() == torch.tensor(1e5, dtype=torch.bfloat16)
    if where == "disk":
        assert torch.equal(whole(read(backbone=Scaled(1e5))), whole(kept))
    with pytest.raises(DataError, match="not finite"):
        read(backbone=Scaled(3.4e38))


def cut_to(name: str, size: int) -> Callable[[Path], object]:
    """Cut a file to so many bytes, or by or to more than it has."""
    return lambda place: os.truncate(place / name, size if size > 1 else (place / name).stat().st_size + size)


def wrong(name: str, **changes: Any) -> Callable[[Path], object]:
    """Let a file of JSON say something else."""
    return lambda place: (place / name).write_text(json.dumps({**json.loads((place / name).read_text()), **changes}))


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "values cut": cut_to("values.bin", -1),
    "values gone": lambda place: (place / "values.bin").unlink(),
    "a flipped bit": lambda place: flip(place / "values.bin", 777),
    "manifest cut": cut_to("manifest.json", 100),
    "manifest gone": lambda place: (place / "manifest.json").unlink(),
    "no entries": lambda place: (place / "manifest.json").write_text("{}"),
    "another type": wrong("manifest.json", dtype="bfloat16x"),
    "no hashes": wrong("manifest.json", digests=[]),
    "other lengths": wrong("manifest.json", lengths="0" * 32),
    "another width": wrong("manifest.json", width=8),
}


def test_a_large_file_is_verified_in_parts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_build, "NOTE_EVERY", 0.0)
    for module in (features, features_store):
        monkeypatch.setattr(module, "SEGMENT", 512)
    kept = read()
    size = (only(cache) / "values.bin").stat().st_size
    assert len(json.loads((only(cache) / "manifest.json").read_text())["digests"]) == -(-size // 512) > 4
    in_memory = FeatureInputs(kept.values.clone(), texts().lengths)
    assert in_memory.fingerprint() == kept.fingerprint()
    in_memory.values[5, 5] += 1
    in_memory = FeatureInputs(in_memory.values, texts().lengths)
    assert in_memory.fingerprint() != kept.fingerprint()
    monkeypatch.setattr(features, "VERIFY_UP_TO", 1024)
    seen: list[int] = []
    monkeypatch.setattr(features, "hash_bytes", lambda part: seen.append(len(part)) or features_store.hash_bytes(part))
    read()
    assert seen == [512, size % 512 or 512]


@pytest.mark.parametrize("kind", ["texts", "pictures"])
def test_batches_gathered_in_a_gpu_s_memory_are_the_same(
    cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code knows no device, so the processor stands in for a GPU; a test marked gpu trains on one."""
    kept = read() if kind == "texts" else read(pictures(), vit())
    assert kept.on(features.CPU) is kept
    monkeypatch.setattr(features, "fits", lambda device, size: size == kept.values.nbytes)
    gathered = kept.on(features.CPU)
    assert len(gathered) == len(kept)
    assert gathered.lengths is kept.lengths
    shortest = kept._tokens.argsort()
    for index in (torch.arange(len(kept)), shortest[:1], shortest[-1:], torch.tensor([3, 0, 3])):
        here, there = kept.batch(index), gathered.batch(index)
        assert here.keys() == there.keys()
        for name, tensor in here.items():
            torch.testing.assert_close(there[name], tensor, rtol=0, atol=0)


def test_a_quarter_of_what_is_free_on_a_gpu_is_taken_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4000, 8000))
    assert [fits(torch.device("cuda"), size) for size in (0, 1000, 1001)] == [True, True, False]
    assert not fits(torch.device("cpu"), 0)


FULL = OSError(28, "No space left on device")


def stopped(
    call: int,
    inputs: Inputs | None = None,
    backbone: nn.Module | None = None,
    error: type[BaseException] | OSError = KeyboardInterrupt,
) -> None:
    """Begin a build that ends at the n-th forward pass, noted after each; the first one is of one row alone."""

    def at(number: int) -> None:
        if number == call:
            raise error

    backbone = backbone or bert()
    counted(backbone, at)
    ends, said = (
        (DataError, "cannot be written.*No space left.*LEVELHEAD_CACHE=off") if error is FULL else (error, None)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features_build, "NOTE_EVERY", 0.0)
        with pytest.raises(ends, match=said):
            read(inputs, backbone)


@pytest.mark.parametrize(
    ("error", "rows", "near"),
    [
        (KeyboardInterrupt, [1, 8, 8, 8], 0),
        (torch.OutOfMemoryError, [1, 5, 5, 5, 5, 4], 2e-3),  # goes on with smaller batches
        (FULL, [1, 8, 8, 8], 0),
    ],
)
def test_a_stopped_build_goes_on(cache: Path, error: Any, rows: list[int], near: float) -> None:
    expected = whole(read()).clone()
    shutil.rmtree(cache)
    stopped(3, error=error)
    assert only(cache).suffix == ".building"
    kept, seen = noted(batch_size=rows[1])
    assert seen == rows
    torch.testing.assert_close(whole(kept), expected, atol=near, rtol=0)


def test_a_build_stopped_in_bfloat16_does_not_begin_with_float16_again(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(5, backbone=Scaled(1e5))  # one row, at least a batch in vain, at least a batch
    assert len(caplog.records) == 1
    kept, rows = noted(Scaled(1e5))
    assert kept.values.dtype == torch.bfloat16
    assert sum(rows) < ROWS
    assert len(caplog.records) == 1


UNFINISHED: dict[str, Callable[[Path], object]] = {
    "holes": lambda place: flip(place / "values.bin", 100),
    "no values": lambda place: (place / "values.bin").unlink(),
    "note of more rows": wrong("progress.json", done_rows=24),
}


@pytest.mark.parametrize("damage", [*DAMAGES, *UNFINISHED])
def test_damage_is_said_and_built_anew(cache: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    expected = whole(read()).clone()
    if damage in UNFINISHED:
        shutil.rmtree(cache)
        stopped(3)
    (DAMAGES | UNFINISHED)[damage](only(cache))
    rows = counted(backbone := bert())
    for _ in range(2):
        assert torch.equal(whole(read(backbone=backbone)), expected)
        assert sum(rows) == ROWS + 1
    (record,) = caplog.records
    assert ("cannot be used" if damage in UNFINISHED else "is damaged") in record.getMessage()


def slow_reader(seconds: float, begun: Any, begun_at: int | None, counts: Any) -> None:
    """Read the features with a slow backbone, and tell how many rows it ran."""
    features_build.NOTE_EVERY = 0.0

    def slowly(call: int) -> None:
        if call == begun_at:
            begun.set()
        time.sleep(seconds)

    rows = counted(backbone := bert(), slowly)
    read(backbone=backbone)
    counts.put(sum(rows))


def start(seconds: float, counts: Any = None, begun_at: int | None = None) -> Any:
    """Fork a reader, and wait until it begins its n-th pass, if one is named."""
    begun = PROCESSES.Event()
    process = PROCESSES.Process(target=slow_reader, args=(seconds, begun, begun_at, counts or PROCESSES.SimpleQueue()))
    with warnings.catch_warnings():  # newer Pythons warn that threads do not survive a fork; none is needed here
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    assert begun_at is None or begun.wait(60)
    return process


@pytest.mark.parametrize("power", ["stays", "goes"])
def test_a_killed_build_goes_on_to_the_same_bytes(cache: Path, power: str) -> None:
    expected = read()
    undisturbed = {file.name: file.read_bytes() for file in only(cache).iterdir()}
    shutil.rmtree(cache)
    killed = start(0.1, begun_at=4)
    killed.kill()
    killed.join(60)
    assert killed.exitcode == -9
    (found,) = cache.glob("*.building")
    if power == "goes":  # what was written after the note is lost
        note = json.loads((found / "progress.json").read_text())
        values = found / "values.bin"
        written = note["done_tokens"] * 16 * 2
        values.write_bytes(values.read_bytes()[:written] + bytes(values.stat().st_size - written))
    kept, rows = noted()
    assert torch.equal(whole(kept), whole(expected))
    assert sum(rows) == 1 + 2 * BATCH
    assert {file.name: file.read_bytes() for file in only(cache).iterdir()} == undisturbed


def test_two_processes_do_the_work_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    counts = PROCESSES.SimpleQueue()
    for process in [start(0.1, counts, begun_at=0), start(0.1, counts)]:
        process.join(60)
        assert process.exitcode == 0
    assert sorted([counts.get(), counts.get()]) == [0, ROWS + 1]
    assert capfd.readouterr().err.count("Another process is computing these features; waiting for it.") == 1


def test_a_folder_that_is_deleted_while_it_is_built_is_an_error(cache: Path) -> None:
    counted(backbone := bert(), lambda call: shutil.rmtree(cache.parent) if call == 3 else None)
    with pytest.raises(DataError, match="was deleted while it was built"):
        read(backbone=backbone)


def test_a_full_disk_is_noticed_before_the_work(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = TokenInputs({"input_ids": torch.arange(100_000).int() % 40}, torch.tensor([4, 6] * 10_000), {})
    free = [count_bytes(inputs.lengths, 16) - 1, count_bytes(texts().lengths, 16)]
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free.pop(0)))
    rows = counted(backbone := bert())
    message = r"needs 3\.1 MiB in .*, and 3\.1 MiB are free.*another disk, or LEVELHEAD_CACHE=off"
    with pytest.raises(DataError, match=message):
        read(inputs, backbone)
    assert rows == [1]
    assert list(cache.iterdir()) == []
    read()


def test_off_keeps_features_in_memory(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = read()
    monkeypatch.setenv("LEVELHEAD_CACHE", "off")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    kept, rows = noted()
    assert type(kept) is FeatureInputs
    assert torch.equal(whole(kept), whole(on_disk))
    assert kept.fingerprint() == on_disk.fingerprint()
    assert sum(rows) == sum(noted()[1]) == ROWS + 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
