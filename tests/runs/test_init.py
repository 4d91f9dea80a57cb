"""``levelhead init`` and ``levelhead data check``: from a table of one's own to a recipe that runs as it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from command_line import run
from levelhead.data.phrases import vocabulary
from levelhead.plain_yaml import read_yaml
from levelhead.runs.data_check import DataLook, look_at, masked_text
from levelhead.runs.init import _budget, guess_columns, list_pictures, looks_demographic, write_recipe
from levelhead.runs.recipe import load_experiment
from words import save_tiny_backbone

WORDS = sorted(word for word in vocabulary() if word.isalpha())


def reviews(rows: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ends = ["pleased" if row % 2 else "annoyed" for row in range(rows)]
    return pd.DataFrame(
        {
            "review_id": [f"R{row}" for row in range(rows)],
            "gender": [("f", "m")[row // 2 % 2] for row in range(rows)],
            "Age": [18 + row % 50 for row in range(rows)],
            "review": [" ".join([*rng.choice(WORDS, 6), end]) for end in ends],
            "verdict": [("bad", "good")[row % 2] for row in range(rows)],
            "price": [f"{row}.5" for row in range(rows)],
        }
    )


def draw(folder: Path, rows: Iterable[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        Image.new("RGB", (64, 64), (row % 256, 0, 0)).save(folder / f"{row}.png")


def data_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["data"]
    return found


def made(source: Path, *settings: str) -> tuple[dict[str, Any], list[str], DataLook]:
    """Write the recipe of a table beside it; return its section data, what was said, and what a check says."""
    text, guess = write_recipe(source, settings=settings)
    recipe = source.with_suffix(".yaml")
    recipe.write_text(text)
    return data_of(text), guess.said, look_at(load_experiment(recipe))


def rows_in(look: DataLook) -> int:
    return sum(map(sum, look.counts.values()))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, an empty one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_columns_are_guessed_and_what_is_about_people_is_left_out(tmp_path: Path) -> None:
    reviews().to_csv(tmp_path / "reviews.csv", index=False, sep=";", encoding="latin-1")
    data, said, _ = made(tmp_path / "reviews.csv")
    assert data == {
        "name": "text-csv",
        "folder": str(tmp_path),
        "file": "reviews.csv",
        "text_column": "review",
        "target": "verdict",
        "sensitive": ["gender"],
        "validation_share": 0.1,
        "test_share": 0.2,
        "id_column": "review_id",
    }
    assert said[:2] == ["The class to predict is 'verdict'.", "The text is in 'review'."]
    assert "'gender' and 'Age' may say who people are" in said[2]
    assert said[3].startswith("'Age': one value, or more than 20, and no groups to evaluate by.")
    assert said[4:] == ["Not used: 'price'."]


def test_names_that_say_something_of_people() -> None:
    about = ["gender", "Sex", "applicantRace", "date_of_birth", "AGE_YEARS", "is_male", "religion.code", "ZIP"]
    for name in (*about, "Ethnicity"):
        assert looks_demographic(name), name
        table = {"text": [f"some words {row}" for row in range(40)], "y": ["a", "b"] * 20, name: ["0", "1"] * 20}
        guess = guess_columns(table, Path())
        assert (guess.target, guess.inputs, guess.sensitive) == ("y", ["text"], [name])
    for name in ("message", "stage", "average", "mailed", "manual", "sextant", "trace", "text"):
        assert not looks_demographic(name), name


def test_a_column_of_people_is_neither_class_nor_group_and_deals_the_splits(tmp_path: Path) -> None:
    file = tmp_path / "reviews.csv"
    frame = reviews().assign(author=[f"a{row // 4}" for row in range(160)], user_id=["u1", "u2"] * 80)
    frame.to_csv(file, index=False)
    data, said, look = made(file)
    assert (data["person_column"], data["target"], data["sensitive"]) == ("author", "verdict", ["gender"])
    assert any("'author' may identify people" in sentence for sentence in said)
    assert "160 rows of 40 people, 40 of whom have two rows or more." in look.said
    assert not any("in several splits" in sentence for sentence in look.said)
    assert data_of(write_recipe(file, settings=["data.person_column=user_id"])[0])["person_column"] == "user_id"
    frame.assign(author=range(160)).drop(columns="user_id").to_csv(file, index=False)
    assert "person_column" not in made(file)[0]


def test_pairs_splits_and_several_classes() -> None:
    table = {name: [f"{name} of row {row}" for row in range(60)] for name in ("premise", "hypothesis")}
    table |= {"split": ["train", "dev", "test"] * 20, "genre": ["x", "y"] * 30, "label": ["e", "n", "c"] * 20}
    guess = guess_columns(table, Path())
    assert (guess.inputs, guess.split, guess.target) == (["premise", "hypothesis"], "split", "label")
    assert "It might also be 'genre': set data.target." in guess.said
    assert guess_columns(table | {"split": ["train"] * 60}, Path()).split is None  # of which all rows are


def test_a_text_that_is_named_is_the_one_that_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names in (("text", "comment"), ("premise", "hypothesis")):
        words = {name: [f"{name} of row {row}" for row in range(40)] for name in names}
        pd.DataFrame(words | {"label": ["a", "b"] * 20}).to_csv(f"{names[0]}.csv", index=False)
    for file, more, inputs, unused in (
        ("text.csv", ("--text", "comment"), ["comment"], "text"),
        ("premise.csv", (), ["premise", "hypothesis"], ""),
        ("premise.csv", ("--text", "premise"), ["premise"], "hypothesis"),
        ("premise.csv", ("--text", "hypothesis", "--set", "data.pair_column=premise"), ["hypothesis", "premise"], ""),
        ("premise.csv", ("--set", "data.pair_column=null"), ["premise"], "hypothesis"),
    ):
        assert run("init", file, *more, "--out", "out.yaml", "--force") == 0
        data = data_of(Path("out.yaml").read_text())
        assert [data[name] for name in ("text_column", "pair_column") if data.get(name) is not None] == inputs
        printed = capsys.readouterr().out
        assert f"in {' and '.join(map(repr, inputs))}." in printed
        assert (f"Not used: '{unused}'." in printed) == bool(unused)


def test_pictures_with_a_csv(tmp_path: Path) -> None:
    draw(tmp_path / "all", range(80))
    table = {"file": [f"all/{row}.png" for row in range(80)], "race": ["a", "b", "b", "a"] * 20, "smiling": [0, 1] * 40}
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    assert not list_pictures(tmp_path)
    data, _, look = made(tmp_path)
    assert data["name"] == "image-folder-csv"
    assert rows_in(look) == 80
    assert look.examples[0].endswith(": pixel_values 3 x 64 x 64")
    assert "Training opens 'file' (the picture's file), 'smiling' (the class)." in look.said
    assert "Only evaluation opens 'race'." in look.said


def test_a_folder_with_a_table_for_each_split_or_parts_of_it(here: Path) -> None:
    rows = reviews()
    for folder, parts in (
        ("whole", {"train": (0, 80), "dev": (80, 120), "test": (120, 160)}),
        ("parts", {"train/0": (0, 40), "train/1": (40, 80), "dev": (80, 120), "test-00000-of-00001": (120, 160)}),
    ):
        for name, (start, end) in parts.items():
            file = here / folder / f"{name}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            rows[start:end].to_parquet(file)
        (here / folder / "notes.csv").write_text("a\nb\n")
        data, _, look = made(here / folder)
        assert "file" not in data
        assert look.counts == {"bad": [40, 20, 20], "good": [40, 20, 20]}


def test_the_look_names_the_groups_of_a_data_set_that_has_its_own() -> None:
    sizes = [f"data.{split}_size=40" for split in ("train", "validation", "test")]
    look = look_at(load_experiment("portraits_erm", sizes))
    assert "Only evaluation opens the groups (drawing style: round or angular)." in look.said
    assert not any("No groups are named" in one for one in look.said)


def test_from_a_csv_to_an_evaluation_without_an_editor(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(here / "cache"))
    save_tiny_backbone(here / "backbone", vocabulary())
    table = reviews()
    table.drop(columns=["gender", "Age"]).to_csv("reviews.csv", index=False)
    assert run("init", "reviews.csv", "--backbone", "backbone") == 0
    assert run("init", "reviews.csv") != 0
    assert "exists already" in capsys.readouterr().err
    assert run("data", "check", "reviews.yaml", "--data-root", ".", "--set", "train.epochs=1") == 0
    printed = capsys.readouterr().out
    assert "Next: levelhead train reviews.yaml" in printed
    assert "Training opens 'review' (the text), 'verdict' (the class)." in printed
    assert "Only evaluation opens 'review_id' (the id)." in printed
    assert not any(text in printed for text in table["review"])
    assert run("train", "reviews.yaml", "--set", "train.epochs=1", "--set", "model.max_length=32") == 0
    folder = Path("runs/reviews-seed0")
    assert run("evaluate", folder, "--html", "page.html") == 0
    assert "No groups are known" in capsys.readouterr().out
    assert re.search(r"<h1[^>]*>Right for [\d.]+% of \d+ rows", Path("page.html").read_text())

    # Another table is evaluated as a whole.
    table.drop(columns=["gender", "Age"])[:40].to_csv("later.csv", index=False)
    assert run("evaluate", folder, "--set", "data.file=later.csv", "--set", "data.test_share=1", "--out", "later") == 0
    assert len(pd.read_parquet("later/predictions-test.parquet")) == 40


def test_texts_in_two_splits_are_counted_and_texts_are_masked(tmp_path: Path) -> None:
    frame = reviews()
    frame["split"] = ["train"] * 100 + ["validation"] * 30 + ["test"] * 30
    frame.loc[100:104, "review"] = frame["review"][:5].tolist()
    frame.to_csv(tmp_path / "a.csv", index=False)
    _, _, look = made(tmp_path / "a.csv")
    assert any(said.startswith("5 of 30 validation rows hold a text that training sees, too") for said in look.said)
    assert masked_text("Call 555-0199, Ana!\nNow") == "C··· 5··-0···, A··! N·· (23 characters)"
    assert masked_text("a" * 100_000) == f"a{'·' * 59}… (100,000 characters)"


def test_hostile_names_stay_values(tmp_path: Path) -> None:
    folder = tmp_path / "a: [b]\n#c"
    folder.mkdir()
    frame = pd.DataFrame({"te: xt\n#": [f"some words {row}" for row in range(200)], "yes": ["a", "b"] * 100})
    frame["sex'\"; !!x"] = ["f", "m", "m", "f"] * 50
    frame.to_csv(folder / "a\n- b.csv", index=False)
    data, _, look = made(folder / "a\n- b.csv")
    assert (data["text_column"], data["sensitive"]) == ("te: xt\n#", ["sex'\"; !!x"])
    assert rows_in(look) == 200
    # The comments of a recipe name its own file.
    reviews().to_csv(tmp_path / "a.csv", index=False)
    place = tmp_path / "my first.yaml"
    assert run("init", tmp_path / "a.csv", "--out", place) == 0
    assert f"# levelhead train {shlex.quote(str(place))}" in place.read_text().splitlines()
    assert "a.yaml" not in place.read_text()


@pytest.mark.parametrize("splits", [("",), ("train", "val", "test"), ("train", "val", "eval")])
def test_pictures_in_a_folder_for_each_class(
    splits: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in splits:
        for place, label in enumerate(("=cat, small", "dog")):
            draw(here / "pets" / split / label, range(100 * place, 100 * place + 30))
            (here / "pets" / split / label / "notes.md").write_text("no picture")
    assert run("init", "pets") == 0
    printed = capsys.readouterr().out
    assert f"{60 * len(splits)} pictures, of the classes '=cat, small' and 'dog' by their folders." in printed
    assert not re.search(r"^'?=|,'?\"?=", Path("pets.csv").read_text(), flags=re.M)  # no formula for a spreadsheet
    look = look_at(load_experiment("pets.yaml"))
    assert look.counts.keys() == {"'=cat, small", "dog"}
    assert rows_in(look) == 60 * len(splits)
    if len(splits) > 1:
        assert set(map(tuple, look.counts.values())) == {(30, 30, 30)}
    assert run("init", "pets", "--set", "data.image_size=32", "--force") == 0
    recipe = read_yaml(Path("pets.yaml").read_text(), "pets.yaml")
    assert recipe["data"]["image_size"] == recipe["model"]["image_size"] == 32
    load_experiment("pets.yaml").check_pixels()
    Path("pets.yaml").unlink()
    assert run("init", "pets") == 2
    assert "pets.csv exists already" in capsys.readouterr().err


def test_folders_of_people_are_named(tmp_path: Path) -> None:
    for label in ("men", "women"):
        draw(tmp_path / "a" / label, [1])
    _, guess = write_recipe(tmp_path / "a", pictures=list_pictures(tmp_path / "a"))
    assert "'men' and 'women' may say who people are. A model would be trained to predict that." in guess.said[1]


@pytest.mark.parametrize(("rows", "updates"), [(20, 300), (417, 300), (5_000, 300), (100_000, 1_600)])
def test_epochs_and_batches_are_for_the_size_of_the_table(rows: int, updates: int) -> None:
    epochs, batch = _budget(rows, 3)
    made = epochs * 0.7 * rows / batch
    assert updates <= made < 1.2 * updates
    assert 0.7 * rows / batch >= 7
