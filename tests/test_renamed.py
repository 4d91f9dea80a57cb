"""Recipes, overrides and grids with the names that options had in version 0.1.0.dev0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from levelhead.bench.grid import Grid, comparison_grid, make_cells, read_grid, remember
from levelhead.renamed import renamed
from levelhead.runs.folder import load_run, refuse_changes
from levelhead.runs.recipe import assign, build_experiment, load_experiment, override
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
    experiment = build_experiment(override(recipe, settings))
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
        build_experiment(assign(EARLIER, "method.debias.queue", "many"))
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
    with pytest.raises(ConfigError, match="under an earlier and its present name"):
        Grid(PRESENT, {"row": {"model.cls_only": True, "model.readout_only": True}})


def test_the_recipes_that_come_along_use_present_names() -> None:
    experiment = load_experiment("portraits_erm_shortcut")
    assert experiment.model.readout_only is True  # type: ignore[attr-defined]
    for file in (Path(__file__).parents[1] / "recipes").rglob("*.yaml"):
        assert "cls_only" not in file.read_text(), file
