"""A grid of KLAAD trainings: its cells, one yardstick for all, and going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from klaad_examples import TRIPLETS, language_model, tokenizer

from levelhead.cli import klaad as command
from levelhead.lm.klaad import Klaad, collate
from levelhead.lm.klaad_training import load_klaad, load_language_model
from levelhead.lm.klaad_tuning import held_out_figures, read_cells, tuning_table, yardstick_of
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError


def recipe(folder: Path, grid: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(f"grid: {grid}\nklaad: {{margin: 0.2}}\ntrain: {{device: cpu, batch_size: 3}}\n")
    return path


def test_the_published_ranges_are_a_recipe() -> None:
    cells = read_cells("klaad_tuning")
    assert len(cells) == 26
    assert cells["weights-1.0-0-0"].klaad.weights == (1, 0, 0)
    weights = [config.klaad.weights for config in cells.values()]
    assert all(sum(triple) == pytest.approx(1) for triple in weights)
    assert (min(w[0] for w in weights), max(w[0] for w in weights)) == (0.5, 1.0)
    assert {config.klaad.margin for config in cells.values()} == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert cells["weights-0.7-0.15-0.15-margin-0.3"].klaad == Klaad()


def test_cells_are_products_and_their_union(tmp_path: Path) -> None:
    path = recipe(tmp_path, "[{klaad.margin: [0.1, 0.5], train.epochs: [1, 2]}, {klaad.per_head: [true]}]")
    cells = read_cells(path, ["train.learning_rate=0.5"])
    assert list(cells) == ["margin-0.1-epochs-1", "margin-0.1-epochs-2", "margin-0.5-epochs-1", "margin-0.5-epochs-2",
                           "per_head-true"]  # fmt: skip
    assert cells["margin-0.5-epochs-2"].train.epochs == 2
    assert cells["per_head-true"].klaad == Klaad(margin=0.2, per_head=True)
    assert {config.train.learning_rate for config in cells.values()} == {0.5}


@pytest.mark.parametrize("setting", ["klaad.margin=0.5", "klaad={margin: 0.5}", " klaad.margin =0.5"])
def test_a_setting_that_the_grid_has_is_refused(setting: str, tmp_path: Path) -> None:
    path = recipe(tmp_path, "[{seed: [0]}, {klaad.margin: [0.1, 0.2]}]")
    with pytest.raises(ConfigError, match="would do nothing, because the recipe's grid sets it: leave"):
        read_cells(path, [setting])
    assert len(read_cells(path, ["klaad={per_head: true}", "train.epochs=2"])) == 3


def test_two_cells_with_one_folder_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"share the folder 'name-org-one'; the second is model\.name=org-one"):
        read_cells(recipe(tmp_path, "{model.name: [org/one, org-one]}"))
    assert list(read_cells(recipe(tmp_path, "{klaad.margin: [0.1, 0.1]}"))) == ["margin-0.1"]


def test_a_recipe_without_a_grid_is_one_training() -> None:
    assert read_cells("klaad_small", ["seed=3"]) == {"": load_klaad("klaad_small", ["seed=3"])}


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("{klaad.margin: 0.1}", "lists of values"),
        ("[]", "no combination"),
        ("{klaad.margin: []}", "lists of values"),
        ("{klaad.margim: [0.1]}", "margim"),
        ("{klaad.margin: [-1]}", "margin is -1"),
    ],
)
def test_a_wrong_grid_names_its_mistake(grid: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_cells(recipe(tmp_path, grid))


def test_every_cell_is_measured_alike() -> None:
    model = language_model("llama")
    for batch_size in (1, 3, 100):
        found = held_out_figures(model.train(), tokenizer(), TRIPLETS, batch_size)
        _, expected = Klaad()(model.eval(), collate(tokenizer(), TRIPLETS))
        assert found == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-5)


def test_one_yardstick_has_the_published_loss_and_the_largest_length(tmp_path: Path) -> None:
    path = recipe(tmp_path, "{klaad.double_softmax: [false, true], klaad.align: [pad], train.max_length: [64, 8]}")
    assert yardstick_of(read_cells(path)) == {**vars(Klaad()), "weights": [0.7, 0.15, 0.15], "max_length": 64}
    path = recipe(tmp_path, "{train.max_length: [64, null]}")
    assert yardstick_of(read_cells(path))["max_length"] is None


def test_untrained_cells_of_one_model_have_one_row_of_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells that differ only in how their loss is computed: without training, none is better than another."""
    model = language_model("llama").eval()
    (tmp_path / "own.csv").write_text(
        "stereo,anti,unrelated,term\n"
        + "".join(f"{one.stereotype},{one.anti_stereotype},{one.unrelated},{term}\n" for term in "abcdefgh"
                  for one in TRIPLETS[:1])
    )  # fmt: skip
    monkeypatch.setattr(command, "_train", lambda *_: (model, tokenizer()))
    grid = "{klaad.double_softmax: [false, true], klaad.align: [shared, truncate], train.max_length: [64, 32]}"
    command.train_command(str(recipe(tmp_path, grid)), tmp_path / "own.csv", tmp_path / "out", None, 0.4)
    found = [read_json(path) for path in sorted((tmp_path / "out").rglob("held-out.json"))]
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert capsys.readouterr().out.count("*") == 9  # all cells, and the legend


def test_marked_is_what_no_other_beats_twice() -> None:
    rest = {"triplet": 0.0, "entropy": 0.0, "likelihood_gap": 0.0}
    figures = {"a": {"ce": 1, "kl": 3}, "b": {"ce": 2, "kl": 2}, "c": {"ce": 2, "kl": 3}, "d": {"ce": 3, "kl": 1}}
    table = tuning_table({name: {**cell, **rest} for name, cell in figures.items()})
    assert list(table.columns[0].cells) == ["*", "*", "", "*"]


def test_the_command_trains_every_cell_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    language_model("llama").save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    lines = ["stereo,anti,unrelated,term"]
    lines += [f"{TRIPLETS[0].stereotype},{TRIPLETS[0].anti_stereotype},{TRIPLETS[0].unrelated},{t}" for t in "abcdefgh"]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    path, out = recipe(tmp_path, "{klaad.margin: [0.1, 0.5]}"), tmp_path / "out"
    options = [f"model.name={tmp_path / 'base'}"]
    loads = []

    def load(config: Any) -> Any:
        loads.append(config)
        if len(loads) == 2 and fail:
            raise KeyboardInterrupt
        return load_language_model(config)

    monkeypatch.setattr("levelhead.lm.klaad_training.load_language_model", load)
    fail = True
    with pytest.raises(KeyboardInterrupt):
        command.train_command(str(path), tmp_path / "own.csv", out, options, 0.4)
    fail = False
    capsys.readouterr()
    command.train_command(str(path), tmp_path / "own.csv", out, options, 0.4)
    assert len(loads) == 3  # the first cell was done
    printed = capsys.readouterr().out
    assert "2 of 2: margin-0.5" in printed
    assert "divergence" in printed
    assert {folder.name for folder in out.iterdir()} == {"margin-0.1", "margin-0.5"}
    assert (out / "margin-0.5" / "model").is_dir()
    figures = read_json(out / "margin-0.1" / "held-out.json")
    write_json(out / "margin-0.1" / "held-out.json", {**figures, "ce": 0.0, "measured_with": {"max_length": 3}})
    command.train_command(str(path), tmp_path / "own.csv", out, options, 0.4)
    assert read_json(out / "margin-0.1" / "held-out.json") == figures  # measured again, not trained
    for other in ({"settings": [*options, "seed=1"]}, {"split_seed": 5}):  # the figures of another grid were shown
        with pytest.raises(ConfigError, match=r"margin-0.1 holds a training with other settings"):
            command.train_command(
                str(path), tmp_path / "own.csv", out, **{"settings": options, "held_out_share": 0.4, **other}
            )
    with pytest.raises(ConfigError, match="held-out-share"):
        command.train_command(str(path), tmp_path / "own.csv", out, options, 0.0)
    single = recipe(tmp_path, "{klaad.margin: [0.1]}")
    command.train_command(str(single), tmp_path / "own.csv", tmp_path / "single", options, 0.4)
    assert "divergence" in capsys.readouterr().out  # a grid of one cell is measured, too
