from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from levelhead.data import DATASETS
from levelhead.lm import BENCHMARKS
from levelhead.methods import DAM, METHODS
from levelhead.runs.recipe import (
    build_experiment,
    find_recipe,
    load_experiment,
    override,
    read_recipe,
    recipe_folder,
    task_recipe,
)
from levelhead.types import ConfigError

RECIPE: dict[str, Any] = {
    "data": {"name": "portraits", "correlation": 0.5},
    "method": {"name": "dam", "debias": {"top_t": 3}},
    "model": {"hidden_size": 32, "layers": 2, "heads": 4},
    "train": {"epochs": 2, "learning_rate": "1e-3"},
    "seed": 4,
}


def test_a_recipe_becomes_an_experiment_and_back() -> None:
    experiment = build_experiment(RECIPE)
    assert isinstance(experiment.method, DAM)
    assert experiment.method.debias.top_t == 3
    assert experiment.train.learning_rate == 1e-3  # YAML reads 1e-3 as text
    assert build_experiment(experiment.to_dict()) == experiment


@pytest.mark.parametrize("path", sorted(recipe_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_comes_with_levelhead_is_valid(path: Path) -> None:
    experiment = load_experiment(path)
    assert path.read_text().startswith("# ")
    name = str(experiment.to_dict()["method"]["name"])
    assert name in path.stem


def test_settings_override_anything() -> None:
    changed = override(RECIPE, ["train.epochs=7", "method.debias.alpha=0", "data.correlation=1", "seed=9"])
    experiment = build_experiment(changed)
    assert (experiment.train.epochs, experiment.method.debias.alpha, experiment.seed) == (7, 0, 9)  # type: ignore[attr-defined]
    assert RECIPE["train"]["epochs"] == 2
    assert RECIPE["method"]["debias"] == {"top_t": 3}


def test_no_is_a_word_and_false_is_a_boolean() -> None:
    changed = override(RECIPE, ["train.precision=no", "train.keep_epochs=false"])
    experiment = build_experiment(changed)
    assert (experiment.train.precision, experiment.train.keep_epochs) == ("no", False)


def test_a_wrong_path_is_not_taken_for_the_name_of_a_recipe(tmp_path: Path) -> None:
    assert find_recipe("recipes/portraits_dam.yaml").is_file()
    assert find_recipe("portraits_dam").is_file()
    for wrong in (tmp_path / "portraits_dam.yaml", "portraits_dam.v2"):
        with pytest.raises(ConfigError, match="no recipe"):
            find_recipe(wrong)


def test_a_file_that_is_no_recipe_is_named_in_one_line_and_not_shown(tmp_path: Path) -> None:
    secret = "the diagnosis of patient 4711, 1\n"
    table = tmp_path / "my texts.csv"
    table.write_text("text,label\n" + secret * 20_000)
    with pytest.raises(
        ConfigError, match=r"my texts.csv is a csv, not a recipe. To audit .*: levelhead audit '.*'"
    ) as no:
        read_recipe(table)
    assert f"data.folder={tmp_path} --set data.file='my texts.csv'" in str(no.value)
    assert "4711" not in str(no.value)
    *_, line = str(no.value).split("in it: ")  # the line to type is one that works
    told = load_experiment("hatexplain_erm_le", [word for word in shlex.split(line)[3:] if "=" in word])
    assert (told.data.folder, told.data.file) == (str(tmp_path), "my texts.csv")  # type: ignore[attr-defined]
    for content, message in (
        (secret.encode() * 3, "must hold the sections data, method, model and train; it holds a text"),
        (b"- 4711\n- 4712", "it holds a list"),
        (b"4711", "it holds a number"),
        (b"4711: [", r"not valid YAML: line 1, column 8: "),
        (b"4711\xff", "is not UTF-8 text, at byte 4: it is no recipe"),
        (b"x: " + b"4711" * 300_000, "is longer than 1,000,000 bytes: it is no recipe"),
    ):
        (tmp_path / "wrong.yaml").write_bytes(content)
        with pytest.raises(ConfigError, match=message) as no:
            read_recipe(tmp_path / "wrong.yaml")
        assert "4711" not in str(no.value).replace(str(tmp_path), "")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="is not a file"):
        read_recipe(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match=r"There is no recipe 'x+…'"):
        find_recipe("x" * 5000)


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.yaml").write_bytes(b"\xef\xbb\xbfseed: 1")
    assert read_recipe(tmp_path / "marked.yaml") == {"seed": 1}


def test_data_root_and_seed_come_from_the_command_line(tmp_path: Path) -> None:
    experiment = load_experiment("utkface64_erm_small", data_root=tmp_path, seed=5)
    assert (experiment.data.root, experiment.seed) == (tmp_path, 5)


def test_tasks_have_recipes() -> None:
    assert task_recipe("utkface64") == "utkface64_erm_small"
    assert task_recipe("portraits") == "portraits_erm"
    with pytest.raises(
        ConfigError, match=r"Did you mean 'utkface64'\? Known: celeba64_attractive, celeba64_blond, celeba_blond, hate"
    ):
        task_recipe("utkface")


def test_every_recipe_is_made_again_from_its_record() -> None:
    contents = [read_recipe(path) for path in sorted(recipe_folder().glob("*.yaml"))]
    contents.append(
        contents[0] | {"method": {"name": "dam+jtt", "debias": {"preset": "paper"}, "base": {"upweight": 3}}}
    )
    for content in contents:
        experiment = build_experiment(content)
        assert build_experiment(experiment.to_dict()) == experiment


def test_options_beside_a_preset_win_one_by_one() -> None:
    method = {"name": "dam", "debias": {"preset": "released-multinli", "notebook": {"queue": 0}}}
    recipe = {"data": {"name": "portraits"}, "method": method}
    debias = build_experiment(recipe).method.debias  # type: ignore[attr-defined]
    assert debias.notebook.queue == 0
    assert debias.notebook.off_by_one
    with pytest.raises(ConfigError, match=r"Unknown key method\.debias\.notebook\.quue\. Did you mean 'queue'"):
        build_experiment(override(recipe, ["method.debias.notebook.quue=3"]))


def test_registered_names_have_one_separator() -> None:
    for registry in (METHODS, DATASETS, BENCHMARKS):
        assert not [name for name in registry if "_" in name]
