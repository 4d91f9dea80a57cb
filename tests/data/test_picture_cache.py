from __future__ import annotations

import multiprocessing
import shutil
import time
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawing import picture

from levelhead import terminal
from levelhead.data import Examples, images
from levelhead.data.cache import picture_inputs
from levelhead.data.cache_folder import cache_folder
from levelhead.data.images import ImageInputs, decode_images
from levelhead.data.text_files import say_once
from levelhead.types import DataError

LABELS = torch.tensor([0, 1] * 3)
DECODED = decode_images([picture(seed) for seed in range(6)], str)
PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pictures"


def fingerprint(labels: torch.Tensor) -> str:
    return ImageInputs(DECODED).with_labels(labels, ("a", "b")).fingerprint


def read(pictures: list[bytes | None] | None = None, labels: torch.Tensor = LABELS, **options: Any) -> Examples:
    encoded = pictures or [picture(seed) for seed in range(6)]
    return picture_inputs(encoded, lambda row: f"picture {row}", **options).with_labels(labels, ("no", "yes"))


def pixels(examples: Examples) -> torch.Tensor:
    return examples.inputs.pixels  # type: ignore[attr-defined]


def test_the_second_reader_decodes_nothing_and_sees_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(terminal, "track", lambda steps, title, total, **options: titles.append(title) or steps)
    first = read()
    monkeypatch.setattr(images, "_decode", lambda *_: pytest.fail("a picture was decoded"))
    second = read()
    assert titles == ["Reading pictures", "Decoding pictures", "Reading pictures"]
    rows = torch.tensor([4, 1])
    for examples in (first, second):
        assert torch.equal(pixels(examples), DECODED)
        assert examples.fingerprint == fingerprint(LABELS)
        expected = images.ImageInputs(DECODED).batch(rows)["pixel_values"]
        assert torch.equal(examples.inputs.batch(rows)["pixel_values"], expected)
    pixels(first).zero_()  # which does not reach the file
    assert torch.equal(pixels(read()), DECODED)
    assert read(labels=LABELS.flip(0)).fingerprint == fingerprint(LABELS.flip(0))
    (file,) = cache.iterdir()
    content = np.load(file)  # pixels, and nothing else
    assert (content.shape, content.dtype) == ((6, 3, 64, 64), np.uint8)
    assert file.stat().st_size <= content.nbytes + 128
    assert cache.stat().st_mode & 0o077 == 0


def test_an_edit_is_seen_even_if_size_and_date_stay(cache: Path) -> None:
    before = read()
    changed: list[bytes | None] = [picture(seed, kind="JPEG") for seed in range(6)]
    read(changed)
    other = picture(9, kind="PNG")
    assert torch.equal(pixels(read([*changed[:5], other]))[5], decode_images([other], str)[0])
    assert torch.equal(pixels(read()), pixels(before))
    assert not torch.equal(pixels(read([*[picture(seed) for seed in range(5, -1, -1)]])), pixels(before))
    assert pixels(read(image_size=32)).shape == (6, 3, 32, 32)
    assert len(list(cache.glob("*.npy"))) == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1000]),
        lambda file: file.write_bytes(file.read_bytes() + b"more"),
        lambda file: file.rename(file.with_name(f".{file.name}.tmp")).write_bytes(b"half" * 1000),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes().replace(b"(6, 3, 64, 64), }", b"(6, 3, 64, (64, {", 1)),
        lambda file: file.write_bytes(file.read_bytes().replace(b"(6, 3, 64, 64), }", b"(6, 3, 'x', 9), }", 1)),
        lambda file: file.write_bytes(b"PK\x03\x04 or something else"),
        lambda file: file.write_bytes(file.read_bytes().replace(b"(6, 3,", b"(3, 6,", 1)),
        lambda file: file.write_bytes(file.read_bytes().replace(b"|u1", b"|i1", 1)),
        lambda file: np.save(file, np.zeros((5, 3, 64, 64), np.uint8)),
    ],
)
def test_a_cut_or_foreign_file_is_made_anew(cache: Path, damage: Any) -> None:
    expected = pixels(read()).clone()
    (file,) = cache.glob("*.npy")
    damage(file)
    assert torch.equal(pixels(read()), expected)
    assert np.load(file).shape == (6, 3, 64, 64)


def test_where_the_cache_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setenv("HOME", str(tmp_path))
    assert read().fingerprint == fingerprint(LABELS)  # with LEVELHEAD_CACHE=off
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("LEVELHEAD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "levelhead"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "levelhead"
    monkeypatch.setenv("LEVELHEAD_CACHE", "~/pictures")
    assert cache_folder() == tmp_path / "pictures"
    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("LEVELHEAD_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    say_once.cache_clear()
    assert cache_folder() is None
    assert read().fingerprint == fingerprint(LABELS)
    assert ["no home folder" in record.message for record in caplog.records] == [True]
    monkeypatch.setenv("LEVELHEAD_CACHE", "~/pictures")
    assert cache_folder() is None
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "pictures"))
    assert cache_folder() == tmp_path / "pictures"


def test_a_full_disk_and_a_file_for_a_folder_are_noticed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(2**30, 2**30, 6 * 3 * 64 * 64 - 1))
    with pytest.raises(DataError, match=r"needs 0\.1 MiB in .* 0\.1 MiB are free"):
        read()
    assert list(cache.iterdir()) == []
    (cache.parent / "file").write_text("not a folder")
    monkeypatch.setenv("LEVELHEAD_CACHE", str(cache.parent / "file"))
    with pytest.raises(DataError, match=r"cannot be written.*LEVELHEAD_CACHE=off"):
        read()


def test_a_broken_picture_is_named_and_leaves_no_cache(cache: Path) -> None:
    pictures: list[bytes | None] = [picture(seed) for seed in range(6)]
    pictures[4] = b"GIF or so"
    with pytest.raises(DataError, match=r"picture 4 cannot be decoded \(9 bytes\)"):
        read(pictures)
    assert list(cache.iterdir()) == []


def slow_reader(seconds: float, begun: Any, counts: Any, begun_at: int) -> None:
    """Read the pictures with a slow decoder, and tell how many it decoded."""
    count, decode = 0, images._decode

    def slowly(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == begun_at:
            begun.set()
        time.sleep(seconds)
        return decode(*arguments)

    images._decode = slowly
    read()
    counts.put(count)


def start(seconds: float, counts: Any, begun_at: int = 1) -> tuple[Any, Any]:
    """Fork a reader, which is ready at once; returns it and the event that it decodes its first (or n-th) picture."""
    begun = PROCESSES.Event()
    process = PROCESSES.Process(target=slow_reader, args=(seconds, begun, counts, begun_at))
    with warnings.catch_warnings():  # newer Pythons warn that threads do not survive a fork; none is needed here
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process, begun


def test_a_killed_process_leaves_nothing_half_read(cache: Path) -> None:
    killed, begun = start(60, PROCESSES.SimpleQueue())
    assert begun.wait(60)
    waiting = [start(0, counts := PROCESSES.SimpleQueue()), start(0, counts)]
    killed.kill()
    killed.join(60)
    for process, _ in waiting:
        process.join(60)
    assert sorted([counts.get(), counts.get()]) == [0, 6]  # two that wait do the work once
    assert [file.suffix for file in cache.iterdir()] == [".npy"]
    assert read().fingerprint == fingerprint(LABELS)
