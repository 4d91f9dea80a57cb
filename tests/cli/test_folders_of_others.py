"""A folder that somebody else has made: none of its links reaches another place, and none of its code is run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from command_line import evaluated_run, run, said
from levelhead.data.cache_folder import cache_folder
from levelhead.loading import load_config, load_tokenizer_of, load_weights, refuse_strange_adapter
from levelhead.runs.recipe import load_experiment
from levelhead.storage import refuse_strange_files
from levelhead.types import ConfigError, DataError
from tiny import tiny_vit

FILES = [
    *("config.yaml", "evaluation-test.json", "predictions-test.parquet", ".lock", "model", "model/model.safetensors"),
    *("checkpoints", "grid.yaml", "scores-bold.json", "klaad.json", "new/deeper/any-name"),
]
OF_RUNS = [
    "evaluate {0}",
    "evaluate {0} --set data.file=other.csv --out {0}",
    "report {0} --card",
    "report {0} --html page.html",
    "table {0}",
    "predict {0} rows.csv --out new.csv",
    "refit {0} --method erm --out refitted",
    "refit whole --method erm --out {0}",
    "train portraits_erm --out {0} --resume",
    "train {0}/config.yaml --out {0} --resume",
    "compare {0}",
    "compare --data portraits --out {0}",
    "compare --data portraits --out {0} --plan",
    "pretrain --data portraits --out {0} --resume",
    "inspect {0}",
    "inspect whole --against {0}",
    "figure {0}",
    "audit {0}",
    "explain {0}",
    "reproduce table1 --out {0}",
    "demo --out {0}",
    "lm bench bold --model {0} --out lm",
    "lm bench bold --model nothing --out {0}",
    "lm compare {0} whole",
    "lm compare whole {0}",
    "lm gap --model {0} --out gap",
    "lm gap --model nothing --out {0}",
]

VERBS = ("train", "data", "evaluate", "predict", "compare", "pretrain", "lm")
EVIL = "raise SystemExit('the code ran')\n"
RECIPE = "data: {name: portraits}\nmethod: {name: '%s:Evil'}\n"
GRID = "base: {data: {name: portraits}}\nseeds: [0]\nrows: {mine: {method.name: '%s:Evil'}}\n"
SCORES = '{"benchmark": "bold", "class": "%s:Evil"}'
PRETRAINING = "data: {name: '%s:Evil'}\n"
DATA = f"{PRETRAINING}method: {{name: erm}}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a run, a second one beside it, and a file elsewhere that is nobody else's business."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "private").write_text("private")
    for name in ("sent", "whole"):
        folder = evaluated_run(tmp_path / name)
        (folder / "config.yaml").write_text("data: {name: portraits}\nmethod: {name: erm}\n")
        (folder / "grid.yaml").write_text(GRID.replace("%s:Evil", "erm"))
    (tmp_path / "rows.csv").write_text("a\n1\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("sent", "evil", "mine")]:
        del sys.modules[name]


def link(place: Path, target: Path | str) -> None:
    """Put a link in the place of a file or a folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def listing(folder: Path) -> dict[str, bytes | None]:
    return {str(one): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_folder_lies_elsewhere(name: str, here: Path) -> None:
    """Whatever the link stands for, and whether something is there or would be made."""
    for target in (here / "home" / "private", here / "home", here / "home" / "new", "../../../home/private"):
        if not (name == ".lock" and target == here / "home"):  # a hidden folder, which is never read
            link(here / "sent" / name, target)
            with pytest.raises(DataError, match=f"sent/{name} is a link that leads out of sent"):
                refuse_strange_files(Path("sent"))


@pytest.mark.parametrize("line", OF_RUNS)
def test_no_verb_follows_a_link_out_of_a_folder(line: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link(here / "sent" / "model", here / "home")
    link(here / "sent" / "evaluation-test.json", here / "home" / "private")
    for name in ("model", "evaluation-test.json"):
        assert run(*line.format("sent").split()) == 2, name
        assert f"sent/{name} is a link that leads out of sent" in said(capsys), name
        (here / "sent" / name).unlink()
    assert listing(here / "home") == {str(here / "home" / "private"): b"private"}


def test_a_link_within_a_folder_and_a_link_to_a_folder_may_stay(here: Path) -> None:
    (here / "sent" / "latest.json").symlink_to("evaluation-test.json")
    (here / "linked").symlink_to("sent")
    (here / "sent" / ".venv").mkdir()
    (here / "sent" / ".venv" / "python").symlink_to(sys.executable)
    for name in ("sent", "linked"):
        refuse_strange_files(Path(name))
    (here / "sent" / ".hidden").symlink_to(here / "home" / "private")
    with pytest.raises(DataError, match="hidden is a link that leads out of sent"):
        refuse_strange_files(Path("sent"))


def test_the_cache_and_models_are_not_left_either(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link(here / "cache" / "pictures" / ".0.npy.tmp", here / "home" / "private")
    monkeypatch.setenv("LEVELHEAD_CACHE", str(here / "cache"))
    with pytest.raises(DataError, match="leads out of"):
        cache_folder()
    tiny_vit().save_pretrained(here / "model")
    link(here / "model" / "model.safetensors", here / "home" / "private")
    with pytest.raises(DataError, match="leads out of"):
        load_config("--model", str(here / "model"))


def test_a_checkpoint_in_the_cache_of_hugging_face_is_read(here: Path) -> None:
    """Its files are links into a folder beside the snapshot; any other link out of it is refused."""
    home = here / "models--a--b"
    tiny_vit().save_pretrained(home / "blobs")
    for file in (home / "blobs").iterdir():
        link(home / "snapshots" / "0" / file.name, Path("../../blobs") / file.name)
    assert load_config("--model", str(home / "snapshots" / "0")).model_type == "vit"
    link(home / "snapshots" / "0" / "config.json", here / "home" / "private")
    with pytest.raises(DataError, match="leads out of"):
        load_config("--model", str(home / "snapshots" / "0"))


def changed(folder: Path, file: str, **entries: Any) -> str:
    """Save a small model with other entries in one of its files, and return its folder."""
    tiny_vit().save_pretrained(folder)
    place = folder / file
    there = json.loads(place.read_text()) if place.exists() else {}
    place.write_text(json.dumps(there | entries))
    return str(folder)


def test_no_part_of_a_checkpoint_lies_elsewhere(tmp_path: Path) -> None:
    place = changed(
        tmp_path / "model", "tokenizer_config.json", vocab_file="../../vocab.txt", tokenizer_class="BertTokenizer"
    )
    with pytest.raises(ConfigError, match=r"vocab_file in tokenizer_config\.json leads out of its folder"):
        load_tokenizer_of("--model", place)
    network = tiny_vit()
    save_file(network.state_dict(), tmp_path / "elsewhere.safetensors", {"format": "pt"})
    (tmp_path / "model" / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(network.state_dict(), "../elsewhere.safetensors")}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"names '\.\./elsewhere\.safetensors', which is no file beside it"):
        load_weights(type(network), "--model", place)


@pytest.mark.parametrize("entries", [{"megatron_core": "evil"}, {"peft_type": "XLORA", "adapters": {"0": "a/b"}}])
def test_an_adapter_that_names_code_or_other_adapters_is_refused(entries: dict[str, Any], tmp_path: Path) -> None:
    settings = {"base_model_name_or_path": "base", "peft_type": "LORA", "megatron_core": "megatron.core"}
    for number, more in enumerate(({}, entries)):
        (tmp_path / "adapter_config.json").write_text(json.dumps(settings | more))
        if number == 0:
            refuse_strange_adapter("--model", str(tmp_path))
    with pytest.raises(ConfigError, match="never loaded"):
        refuse_strange_adapter("--model", str(tmp_path))


@pytest.mark.parametrize("module", ["evil", "sent.evil", "sent.package.evil", "linked"])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("config.yaml", RECIPE, "train {0}config.yaml --out {0} --resume"),
        ("config.yaml", RECIPE, "data check {0}config.yaml"),
        ("config.yaml", RECIPE, "evaluate {0}"),
        ("config.yaml", DATA, "predict {0} rows.csv --out new.csv"),
        ("recipe.yaml", RECIPE, "train {0}recipe.yaml --out new"),
        ("recipe.yaml", RECIPE, "data check {0}recipe.yaml"),
        ("recipe.yaml", RECIPE, "compare --recipe {0}recipe.yaml --methods erm --out new"),
        ("recipe.yaml", RECIPE.replace("'%s", "'dam+%s"), "train {0}recipe.yaml --out new"),
        ("grid.yaml", GRID, "compare {0}"),
        ("grid.yaml", GRID, "compare {0}grid.yaml --out new"),
        ("rows.yaml", GRID, "compare {0}rows.yaml --out new --plan"),
        ("recipe.yaml", PRETRAINING, "pretrain {0}recipe.yaml --out new"),
        ("scores-bold.json", SCORES, "lm compare {0} {0}"),
    ],
    ids=lambda part: part.replace("{0}", "") if part.partition(" ")[0] in VERBS else part.partition(":")[0],
)
def test_code_in_the_folder_of_a_recipe_is_never_run(
    module: str, name: str, text: str, line: str, here: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (here / "sent" / "package").mkdir()
    for place in ("evil.py", "package/evil.py"):
        (here / "sent" / place).write_text(EVIL)
    (here / "linked.py").symlink_to("sent/evil.py")
    shutil.copy(here / "rows.csv", here / "sent")
    (here / "sent" / "metrics.json").write_text("{}")
    (here / "sent" / name).write_text(text.replace("%s", module))
    inside = module == "evil"  # found only by whoever has gone into the folder
    monkeypatch.chdir(here / "sent" if inside else here)
    assert run(*line.format("./" if inside else "sent/").split()) == 2
    assert "whose code lies in the same folder" in (told := said(capsys))
    assert "the code ran" not in told
    assert not (here / "new").exists()


def test_code_of_the_current_folder_is_run_where_the_user_names_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line, in a recipe of another folder, or by naming the folder in PYTHONPATH."""
    (here / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom levelhead.methods.erm import ERM\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(ERM):\n    pass\n"
    )
    for name in ("recipes/mine.yaml", "mine.yaml"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("data: {name: portraits}\nmethod: {name: 'mine:Mine'}\n")
    named = "mine:Mine"
    assert load_experiment("portraits_erm", [f"method.name={named}"]).method_name == named
    assert load_experiment("recipes/mine.yaml").method_name == named
    with pytest.raises(ConfigError, match="name the module's folder in PYTHONPATH"):
        load_experiment("mine.yaml")
    monkeypatch.setenv("PYTHONPATH", os.curdir)
    assert load_experiment("mine.yaml").method_name == named


def test_a_page_of_scores_imports_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "evil.py").write_text(EVIL)
    record = {"kind": "scores", "benchmark": "evil:Evil", "overall": {}, "parts": {}, "units": {}, "notes": []}
    (here / "scores.json").write_text(json.dumps(record))
    (here / "lm").mkdir()
    (here / "lm" / "scores-a.json").write_text(json.dumps(record | {"class": "evil:Evil"}))
    for source in ("scores.json", "lm"):
        assert run("report", source, "--html", "page.html") == 0
    assert "evil" not in sys.modules
