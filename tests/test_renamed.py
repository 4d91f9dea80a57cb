"""Recipes, overrides and grids with the names that options and methods had in version 0.1.0.dev0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from levelhead.bench.grid import Grid, compare_methods, comparison_grid, make_cells, parse_methods, read_grid, remember
from levelhead.data import DATASETS
from levelhead.lm import BENCHMARKS
from levelhead.methods import METHODS
from levelhead.renamed import renamed
from levelhead.runs.folder import load_run, refuse_changes
from levelhead.runs.recipe import Experiment, assign, load_experiment, override, present_recipe
from levelhead.runs.recipe import build_experiment as build_present
from levelhead.types import ConfigError

NAMES = {"a": "b", "c": "inner.c", "x.y": "x.z"}
EARLIER: dict[str, Any] = {
    "data": {"name": "portraits"},
    "method": {"name": "dam", "debias": {"selection": "mean_logit", "queue": 5, "cls_only": False, "twice": False}},
    "model": {"cls_only": True},
}
PRESENT: dict[str, Any] = {
    "data": {"name": "portraits"},
    "method": {
        "name": "dam",
        "debias": {"ranking": "mean_logit", "readout_only": False, "notebook": {"queue": 5, "twice": False}},
    },
    "model": {"readout_only": True},
}


def build_experiment(recipe: dict[str, Any]) -> Experiment:
    """As reading a file and assigning options do: earlier names become present ones at the door."""
    return build_present(present_recipe(recipe))


def test_keys_are_renamed_in_a_copy() -> None:
    options = {"a": 1, "c": 2, "x": {"y": 3, "a": 4}}
    assert renamed(options, NAMES) == {"b": 1, "inner": {"c": 2}, "x": {"z": 3, "a": 4}}
    assert options == {"a": 1, "c": 2, "x": {"y": 3, "a": 4}}
    assert renamed({"c": 2, "inner": {"d": 1}}, NAMES) == {"inner": {"c": 2, "d": 1}}
    assert renamed({"x": None, "q": 1}, NAMES) == {"x": None, "q": 1}


@pytest.mark.parametrize("options", [{"a": 1, "b": 1}, {"c": 1, "inner": {"c": 1}}, {"c": 1, "inner": 5}])
def test_both_names_at_once_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is the earlier name of .* both are given"):
        renamed(options, NAMES)


def test_earlier_and_present_recipes_are_one_experiment() -> None:
    earlier, present = build_experiment(EARLIER), build_experiment(PRESENT)
    assert earlier == present
    assert earlier.to_dict() == present.to_dict()
    written = str(earlier.to_dict())
    assert "'selection'" not in written
    assert "cls_only" not in written


@pytest.mark.parametrize("recipe", [EARLIER, PRESENT], ids=["earlier", "present"])
@pytest.mark.parametrize(
    "settings",
    [
        ["method.debias.selection=per_head", "method.debias.queue=9", "model.cls_only=false"],
        ["method.debias.ranking=per_head", "method.debias.notebook.queue=9", "model.readout_only=false"],
        ["method.debias={selection: per_head, queue: 9, cls_only: false}", "model={cls_only: false}"],
    ],
)
def test_overrides_win_whichever_name_they_use(recipe: dict[str, Any], settings: list[str]) -> None:
    experiment = build_experiment(override(present_recipe(recipe), settings))
    debias = experiment.method.debias  # type: ignore[attr-defined]
    assert (debias.ranking, debias.notebook.queue, debias.readout_only) == ("per_head", 9, False)
    assert experiment.model.readout_only is False  # type: ignore[attr-defined]


def test_options_beside_a_preset_win_one_by_one() -> None:
    for beside in ({"queue": 0}, {"notebook": {"queue": 0}}):
        method = {"name": "dam", "debias": {"preset": "released-multinli", **beside}}
        debias = build_experiment({"data": {"name": "portraits"}, "method": method}).method.debias  # type: ignore[attr-defined]
        assert debias.notebook.queue == 0
        assert debias.notebook.off_by_one
        assert not debias.absolute


def test_mistakes_name_the_present_option() -> None:
    with pytest.raises(ConfigError, match=r"method\.debias\.notebook\.queue"):
        build_experiment(assign(present_recipe(EARLIER), "method.debias.queue", "many"))
    with pytest.raises(ConfigError, match=r"Unknown key method\.debias\.notebook\.quue\. Did you mean 'queue'"):
        build_experiment(assign(PRESENT, "method.debias.notebook.quue", 3))
    with pytest.raises(ConfigError, match=r"method\.debias\.selection is the earlier name of method\.debias\.ranking"):
        build_experiment(
            EARLIER | {"method": {"name": "dam", "debias": {"selection": "per_head", "ranking": "per_head"}}}
        )


def test_a_run_folder_of_earlier_names_goes_on(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(EARLIER))
    refuse_changes(tmp_path, build_experiment(PRESENT))
    assert load_run(tmp_path) == build_experiment(PRESENT)
    with pytest.raises(ConfigError, match=r"method\.debias\.ranking: 'mean_logit' then, 'per_head' now"):
        refuse_changes(tmp_path, build_experiment(assign(PRESENT, "method.debias.ranking", "per_head")))


def cells_of(grid: Grid) -> list[str]:
    return [str(cell.folder) for cell in make_cells(grid, Path("out"))]


def test_grids_find_the_cells_of_earlier_names(tmp_path: Path) -> None:
    """The folders are those that version 0.1.0.dev0 made of these grids."""
    earlier = Grid(EARLIER, {"DAM, queue": {"method.debias.queue": 9}, "plain": {"method.name": "dam"}})
    present = Grid(PRESENT, {"DAM, queue": {"method.debias.notebook.queue": 9}, "plain": {"method.name": "dam"}})
    assert earlier == present
    assert cells_of(earlier) == cells_of(present) == ["out/dam-queue-d61d2c44/seed-0", "out/plain-6dd84e2e/seed-0"]
    written = {"base": EARLIER, "seeds": [0], "rows": {"plain": {"method.debias.selection": "mean_logit"}}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(written))
    before = (tmp_path / "grid.yaml").read_bytes()
    again = Grid(PRESENT, {"plain": {"method.debias.ranking": "mean_logit"}})
    assert remember(again, tmp_path) == again == read_grid(tmp_path / "grid.yaml")
    assert (tmp_path / "grid.yaml").read_bytes() == before


def test_a_grid_of_methods_takes_earlier_names() -> None:
    grid = comparison_grid(
        None, recipe="portraits_erm", methods="erm,dam", seeds="0", options=["method.debias.selection=mean_logit"]
    )
    assert grid.rows == {
        "erm": {"method.name": "erm"},
        "dam, selection mean_logit": {"method.name": "dam", "method.debias.ranking": "mean_logit"},
    }
    with pytest.raises(ConfigError, match="by its old and its new name"):
        Grid(PRESENT, {"row": {"model.cls_only": True, "model.readout_only": True}})


def test_the_recipes_that_come_along_use_present_names() -> None:
    experiment = load_experiment("portraits_erm_shortcut")
    assert experiment.model.readout_only is True  # type: ignore[attr-defined]
    for file in (Path(__file__).parents[1] / "recipes").rglob("*.yaml"):
        assert "cls_only" not in file.read_text(), file


def method_recipe(method: str, **more: Any) -> dict[str, Any]:
    return {"data": {"name": "portraits"}, "method": {"name": method}, **more}


def test_registered_names_have_one_separator() -> None:
    for registry in (METHODS, DATASETS, BENCHMARKS):
        assert not [name for name in registry if "_" in name]
    assert METHODS["group_dro"] is METHODS["group-dro"]
    assert "group_dro" not in list(METHODS)


@pytest.mark.parametrize("outer", ["", "dam+"])
def test_an_earlier_name_of_a_method_is_the_same_experiment(outer: str, tmp_path: Path) -> None:
    earlier, present = f"{outer}group_dro", f"{outer}group-dro"
    experiment = build_experiment(method_recipe(earlier, name=f"{earlier}, step 0.1"))
    assert experiment == build_experiment(method_recipe(present, name=f"{present}, step 0.1"))
    assert experiment.to_dict()["method"]["name"] == present
    assert build_experiment(method_recipe(present, name="my group_dro")).name == "my group_dro"  # the user's own words
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(method_recipe(earlier, name=earlier)))
    refuse_changes(tmp_path, build_experiment(method_recipe(present)))
    assert load_run(tmp_path).name == present
    assert load_experiment("portraits_erm", [f"method={{name: {earlier}}}"]) == load_experiment(
        "portraits_erm", [f"method={{name: {present}}}"]
    )


def test_what_serves_the_parts_of_eiil_has_its_earlier_name_too() -> None:
    made = build_experiment(override(method_recipe("eiil"), ["method.second=group_dro"]))
    assert made == build_experiment(method_recipe("eiil"))
    assert made.to_dict()["method"]["second"] == "group-dro"


def test_a_comparison_begun_with_an_earlier_name_of_a_method_is_found_again(tmp_path: Path) -> None:
    """The folders are those that version 0.1.0.dev0 made of this grid."""
    methods = parse_methods("erm,group_dro,dam+group_dro,group-dro")
    assert methods == ["erm", "group-dro", "dam+group-dro"]
    grid = compare_methods({"data": {"name": "portraits"}}, methods, [0], {"train.epochs": [2]})
    assert cells_of(grid) == [
        "out/erm-epochs-2-5f5ecfa9/seed-0",
        "out/group-dro-epochs-2-a9de8dff/seed-0",
        "out/dam-group-dro-epochs-2-7107e591/seed-0",
    ]
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid.to_dict()).replace("group-dro", "group_dro"))
    assert "group_dro, epochs 2" in (tmp_path / "grid.yaml").read_text()
    assert remember(grid, tmp_path) == grid
    resumed = comparison_grid(read_grid(tmp_path / "grid.yaml"), methods="group_dro", options=["train.epochs=2"])
    assert remember(resumed, tmp_path) == grid
    with pytest.raises(ConfigError, match="variants whose names differ"):
        Grid(grid.base, {name: {"method.name": name} for name in ("group_dro", "group-dro")})
