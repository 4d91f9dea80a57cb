from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from command_line import run
from levelhead.data import DATASETS
from levelhead.lm import BENCHMARKS
from levelhead.methods import METHODS
from levelhead.methods.dam import DAM
from levelhead.runs.options import override
from levelhead.runs.recipe import (
    build_experiment,
    data_recipe,
    find_recipe,
    load_experiment,
    read_recipe,
    recipe_folder,
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
    both = {"name": "dam+jtt", "debias": {"preset": "paper"}, "base": {"upweight": 3}}
    for one in (experiment, build_experiment(RECIPE | {"method": both})):
        assert build_experiment(one.to_dict()) == one


@pytest.mark.parametrize("path", sorted(recipe_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_comes_with_levelhead_is_valid(path: Path) -> None:
    experiment = load_experiment(path)
    assert path.read_text().startswith("# ")
    assert str(experiment.to_dict()["method"]["name"]) in path.stem
    assert build_experiment(experiment.to_dict()) == experiment


def test_settings_override_anything() -> None:
    changed = override(RECIPE, ["train.epochs=7", "method.debias.alpha=0", "data.correlation=1", "seed=9"])
    experiment = build_experiment(changed)
    assert (experiment.train.epochs, experiment.method.debias.alpha, experiment.seed) == (7, 0, 9)  # type: ignore[attr-defined]
    assert RECIPE["train"]["epochs"] == 2
    assert RECIPE["method"]["debias"] == {"top_t": 3}
    experiment = build_experiment(override(RECIPE, ["train.precision=no", "train.keep_epochs=false"]))
    assert (experiment.train.precision, experiment.train.keep_epochs) == ("no", False)


def test_a_table_is_no_recipe_and_the_line_to_type_instead_works(tmp_path: Path) -> None:
    table = tmp_path / "my texts.csv"
    table.write_text("text,label\n" + "the diagnosis of patient 4711, 1\n" * 20_000)
    with pytest.raises(ConfigError, match=r"my texts\.csv is a csv, not a recipe") as no:
        read_recipe(table)
    assert "4711" not in str(no.value)
    line = str(no.value).split("trains on it: levelhead ")[1]
    table.write_text("text,label\n" + "".join(f"some words {row},{row % 2}\n" for row in range(200)))
    assert run(*shlex.split(line), "--out", tmp_path / "mine.yaml") == 0
    assert load_experiment(tmp_path / "mine.yaml").data.file == "my texts.csv"  # type: ignore[attr-defined]


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.yaml").write_bytes(b"\xef\xbb\xbfseed: 1")
    assert read_recipe(tmp_path / "marked.yaml") == {"seed": 1}


def test_a_recipe_has_a_name_or_a_path_and_data_root_and_seed_come_from_the_command_line(tmp_path: Path) -> None:
    for recipe in ("utkface64_erm_small", "recipes/utkface64_erm_small.yaml"):
        experiment = load_experiment(recipe, data_root=tmp_path, seed=5)
        assert (experiment.data.root, experiment.seed) == (tmp_path, 5)


def test_data_sets_have_recipes() -> None:
    assert data_recipe("utkface64") == read_recipe(find_recipe("utkface64_erm_small"))
    own, drawn = data_recipe("own:Lamps"), data_recipe("portraits")
    assert own == drawn | {"data": {"name": "own:Lamps"}, "train": drawn["train"] | {"threads": 1}}


def test_options_beside_a_preset_win_one_by_one() -> None:
    method = {"name": "dam", "debias": {"preset": "released-multinli", "notebook": {"queue": 0}}}
    recipe = {"data": {"name": "portraits"}, "method": method}
    debias = build_experiment(recipe).method.debias  # type: ignore[attr-defined]
    assert debias.notebook.queue == 0
    assert debias.notebook.off_by_one


def test_registered_names_have_one_separator() -> None:
    for registry in (METHODS, DATASETS, BENCHMARKS):
        assert not [name for name in registry if "_" in name]


def test_an_option_of_another_version_that_is_off_is_no_mistake() -> None:
    train = RECIPE["train"] | {"of_another_version": None}
    assert build_experiment(RECIPE | {"train": train}) == build_experiment(RECIPE)
