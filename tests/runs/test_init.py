"""``levelhead init`` and ``levelhead data check``: from a table of one's own to a recipe that runs as it is."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from transformers import AutoTokenizer, pipeline

import levelhead as lh
from levelhead.cli.app import main
from levelhead.data.phrases import vocabulary
from levelhead.plain_yaml import read_yaml
from levelhead.runs.data_check import look_at, masked_text
from levelhead.runs.init import _budget, guess_columns, list_pictures, looks_demographic, picture_recipe, write_recipe
from levelhead.runs.recipe import load_experiment
from levelhead.types import DataError
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


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


def data_of(text: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(text)["data"]
    return found


def test_columns_are_guessed_and_what_is_about_people_is_left_out(tmp_path: Path) -> None:
    reviews().to_csv(tmp_path / "reviews.csv", index=False, sep=";", encoding="latin-1")
    text, guess = write_recipe(tmp_path / "reviews.csv")
    assert data_of(text) == {
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
    assert guess.said == [
        "The class to predict is 'verdict'.",
        "The text is in 'review'.",
        "By their names, 'gender' and 'Age' may say who people are. Training does not open them.",
        "'Age': one value, or more than 20, and no groups to evaluate by. Save groups in a column, or audit with "
        "levelhead audit --bins.",
        "Not used: 'price'.",
    ]


@pytest.mark.parametrize(
    "name",
    ["gender", "Sex", "applicantRace", "date_of_birth", "AGE_YEARS", "is_male", "religion.code", "ZIP", "Ethnicity"],
)
def test_names_that_say_something_of_people(name: str) -> None:
    assert looks_demographic(name)
    table = {"text": [f"some words {row}" for row in range(40)], "y": ["a", "b"] * 20, name: ["0", "1"] * 20}
    guess = guess_columns(table, Path())
    assert (guess.target, guess.inputs, guess.sensitive) == ("y", ["text"], [name])


@pytest.mark.parametrize("name", ["message", "stage", "average", "mailed", "manual", "sextant", "trace", "text"])
def test_names_that_do_not(name: str) -> None:
    assert not looks_demographic(name)


def test_a_column_of_people_is_neither_class_nor_group_and_deals_the_splits(tmp_path: Path) -> None:
    frame = reviews().assign(author=[f"a{row // 4}" for row in range(160)], user_id=["u1", "u2"] * 80)
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    text, guess = write_recipe(tmp_path / "reviews.csv")
    data = data_of(text)
    assert (data["person_column"], data["target"], data["sensitive"]) == ("author", "verdict", ["gender"])
    assert any("'author' may identify people" in sentence for sentence in guess.said)
    other, _ = write_recipe(tmp_path / "reviews.csv", settings=["data.person_column=user_id"])
    assert data_of(other)["person_column"] == "user_id"
    (tmp_path / "mine.yaml").write_text(text)
    said = look_at(load_experiment(tmp_path / "mine.yaml")).said
    assert "160 rows of 40 people, 40 of whom have two rows or more." in said
    assert not any("in several splits" in sentence for sentence in said)
    frame.assign(author=range(160)).drop(columns="user_id").to_csv(tmp_path / "once.csv", index=False)
    assert "person_column" not in data_of(write_recipe(tmp_path / "once.csv")[0])


def test_pairs_splits_and_several_classes() -> None:
    table = {
        "premise": [f"some words {row}" for row in range(60)],
        "hypothesis": [f"other words {row}" for row in range(60)],
        "split": ["train", "dev", "test"] * 20,
        "genre": ["x", "y"] * 30,
        "label": ["e", "n", "c"] * 20,
    }
    guess = guess_columns(table, Path())
    assert (guess.inputs, guess.split, guess.target) == (["premise", "hypothesis"], "split", "label")
    assert "It might also be 'genre': set data.target." in guess.said


def test_a_text_that_is_named_is_the_one_that_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = range(40)
    words = {name: [f"{name} of row {row}" for row in rows] for name in ("text", "comment", "premise", "hypothesis")}
    label = {"label": ["a", "b"] * 20}
    pd.DataFrame({"text": words["text"], "comment": words["comment"]} | label).to_csv(tmp_path / "two.csv", index=False)
    pair = {name: words[name] for name in ("premise", "hypothesis")}
    pd.DataFrame(pair | label).to_csv(tmp_path / "pair.csv", index=False)
    place = tmp_path / "out.yaml"
    assert run("init", str(tmp_path / "two.csv"), "--text", "comment", "--out", str(place)) == 0
    assert data_of(place.read_text())["text_column"] == "comment"
    printed = capsys.readouterr().out
    assert "The text is in 'comment'." in printed
    assert "Not used: 'text'." in printed
    for more, inputs in (
        ((), ["premise", "hypothesis"]),
        (("--text", "premise"), ["premise"]),
        (("--text", "hypothesis", "--set", "data.pair_column=premise"), ["hypothesis", "premise"]),
        (("--set", "data.pair_column=null"), ["premise"]),
    ):
        assert run("init", str(tmp_path / "pair.csv"), *more, "--out", str(place), "--force") == 0
        data = data_of(place.read_text())
        found = [data.get(name) for name in ("text_column", "pair_column")]
        assert [name for name in found if name is not None] == inputs
        printed = capsys.readouterr().out
        assert f"in {' and '.join(map(repr, inputs))}." in printed
        assert ("Not used: 'hypothesis'." in printed) == (inputs == ["premise"])


def test_pictures_with_a_csv(tmp_path: Path) -> None:
    for row in range(200):
        (tmp_path / "all").mkdir(exist_ok=True)
        Image.new("RGB", (64, 64), (255 * (row % 2), 0, 0)).save(tmp_path / "all" / f"{row}.png")
    table = {
        "file": [f"all/{row}.png" for row in range(200)],
        "race": ["a", "b", "b", "a"] * 50,
        "smiling": [0, 1] * 100,
    }
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    assert not list_pictures(tmp_path)
    text, _ = write_recipe(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    assert data_of(text)["name"] == "image-folder-csv"
    look = look_at(load_experiment(tmp_path / "mine.yaml"))
    assert sum(map(sum, look.counts.values())) == 200
    assert look.examples[0].endswith(": pixel_values 3 x 64 x 64")
    assert "Training opens 'file' (the picture's file), 'smiling' (the class)." in look.said
    assert "Only evaluation opens 'race'." in look.said


def test_a_folder_with_a_table_for_each_split(tmp_path: Path) -> None:
    for name, part in (("train", slice(0, 80)), ("dev", slice(80, 120)), ("test", slice(120, 160))):
        reviews()[part].to_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "notes.csv").write_text("a\nb\n")
    text, _ = write_recipe(tmp_path)
    assert "file" not in data_of(text)
    (tmp_path / "mine.yaml").write_text(text)
    look = look_at(load_experiment(tmp_path / "mine.yaml"))
    assert look.counts == {"bad": [40, 20, 20], "good": [40, 20, 20]}


def test_the_look_names_the_groups_of_a_data_set_that_has_its_own() -> None:
    sizes = ["data.train_size=200", "data.validation_size=200", "data.test_size=200"]
    look = look_at(load_experiment("portraits_erm", sizes))
    assert "Only evaluation opens the groups (drawing style: round or angular)." in look.said
    assert not any("No groups are named" in one for one in look.said)


@pytest.mark.slow
def test_from_a_csv_to_a_served_model_without_an_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    save_tiny_backbone(tmp_path / "backbone", vocabulary())
    table = reviews()
    table.drop(columns=["gender", "Age"]).to_csv("reviews.csv", index=False)
    assert run("init", "reviews.csv", "--backbone", "backbone") == 0
    assert run("init", "reviews.csv") != 0
    assert "exists already. Choose another --out, or overwrite it with --force" in capsys.readouterr().err
    assert run("data", "check", "reviews.yaml", "--data-root", ".", "--set", "train.epochs=1") == 0
    printed = capsys.readouterr().out
    assert "Next: levelhead train reviews.yaml" in printed
    assert "Training opens 'review' (the text), 'verdict' (the class)." in printed
    assert "Only evaluation opens 'review_id' (the id)." in printed
    assert not any(text in printed for text in table["review"])
    assert run("train", "reviews.yaml", "--set", "train.epochs=1", "--set", "model.max_length=32") == 0
    folder = tmp_path / "runs" / "reviews-seed0"
    assert run("evaluate", "runs/reviews-seed0", "--html", "page.html") == 0
    assert "No groups are known" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"<h1>Right for [\d.]+% of \d+ rows; no groups are known\.", page)

    # Groups that turn up later are joined by the id.
    table[["review_id", "gender"]].rename(columns={"review_id": "id"}).to_csv("groups.csv", index=False)
    predictions = "runs/reviews-seed0/predictions-test.parquet"
    columns = ["--label", "label", "--prediction", "prediction", "--group", "gender", "--min-count", "2"]
    assert run("audit", predictions, *columns, "--join", "groups.csv", "--on", "review_id=id") == 0
    assert "Groups by gender" in capsys.readouterr().out

    # Another table is evaluated as a whole.
    table.drop(columns=["gender", "Age"])[:40].to_csv("later.csv", index=False)
    options = ["--set", "data.file=later.csv", "--set", "data.test_share=1", "--out", "later"]
    assert run("evaluate", "runs/reviews-seed0", *options) == 0
    assert len(pd.read_parquet("later/predictions-test.parquet")) == 40

    # The model is described, loaded, asked through a pipeline, and leaves as one ONNX file.
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "predict the column verdict" in card
    assert "No groups are known." in card
    model = lh.from_pretrained(folder / "model")
    classify = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder / "model"))
    answers = classify(list(table["review"][:3]))
    assert {answer["label"] for answer in answers} <= set(table["verdict"])
    pytest.importorskip("onnxruntime")
    script = str(Path(__file__).parents[2] / "examples" / "export_onnx.py")
    monkeypatch.setattr(sys, "argv", [script, "--model", str(folder / "model"), "--out", "model.onnx"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own code
        runpy.run_path(script, run_name="__main__")
    assert float(re.search(r"largest difference (\S+) of", capsys.readouterr().out)[1]) < 1e-4


def test_texts_in_two_splits_are_counted_and_texts_are_masked(tmp_path: Path) -> None:
    frame = reviews()
    frame["split"] = ["train"] * 100 + ["validation"] * 30 + ["test"] * 30
    frame.loc[100:104, "review"] = frame["review"][:5].tolist()
    frame.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "a.yaml").write_text(write_recipe(tmp_path / "a.csv")[0])
    look = look_at(load_experiment(tmp_path / "a.yaml"))
    assert any(said.startswith("5 of 30 validation rows hold a text that training sees, too") for said in look.said)
    assert masked_text("Call 555-0199, Ana!\nNow") == "C··· 5··-0···, A··! N·· (23 characters)"
    assert masked_text("a" * 100_000) == f"a{'·' * 59}… (100,000 characters)"


def test_the_comments_of_a_recipe_name_its_own_file(tmp_path: Path) -> None:
    reviews().to_csv(tmp_path / "a.csv", index=False)
    place = tmp_path / "my first.yaml"
    assert run("init", str(tmp_path / "a.csv"), "--out", str(place)) == 0
    assert f"# levelhead train {shlex.quote(str(place))}" in place.read_text().splitlines()
    assert "a.yaml" not in place.read_text()


def test_hostile_names_stay_values(tmp_path: Path) -> None:
    folder = tmp_path / "a: [b]\n#c"
    folder.mkdir()
    frame = pd.DataFrame({"te: xt\n#": [f"some words {row}" for row in range(200)], "yes": ["a", "b"] * 100})
    frame["sex'\"; !!x"] = ["f", "m", "m", "f"] * 50
    frame.to_csv(folder / "a\n- b.csv", index=False)
    text, _ = write_recipe(folder / "a\n- b.csv")
    assert data_of(text)["text_column"] == "te: xt\n#"
    assert data_of(text)["sensitive"] == ["sex'\"; !!x"]
    (tmp_path / "a.yaml").write_text(text)
    assert sum(map(sum, look_at(load_experiment(tmp_path / "a.yaml")).counts.values())) == 200


@pytest.mark.parametrize("splits", [("",), ("train", "val", "test"), ("train", "val", "eval")])
def test_pictures_in_a_folder_for_each_class(
    splits: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for split in splits:
        for place, label in enumerate(("cat, small", "dog")):
            folder = tmp_path / "pets" / split / label
            folder.mkdir(parents=True)
            for row in range(60):
                Image.new("RGB", (64, 64), (255 * place, row, 0)).save(folder / f"{row}.png")
            (folder / "notes.md").write_text("no picture")
    assert run("init", "pets") == 0
    assert (
        f"{120 * len(splits)} pictures, of the classes 'cat, small' and 'dog' by their folders."
        in capsys.readouterr().out
    )
    look = look_at(load_experiment("pets.yaml"))
    assert look.counts.keys() == {"cat, small", "dog"}
    assert sum(map(sum, look.counts.values())) == 120 * len(splits)
    if len(splits) > 1:
        assert look.counts == {"cat, small": [60, 60, 60], "dog": [60, 60, 60]}
    assert run("init", "pets", "--set", "data.image_size=32", "--force") == 0
    recipe = read_yaml((tmp_path / "pets.yaml").read_text(), "pets.yaml")
    assert recipe["data"]["image_size"] == recipe["model"]["image_size"] == 32
    load_experiment("pets.yaml").check_pixels()
    (tmp_path / "pets.yaml").unlink()
    assert run("init", "pets") == 2
    assert "pets.csv exists already" in capsys.readouterr().err
    assert run("init", "pets", "--force") == 0


def test_folders_that_begin_like_a_formula_make_no_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place, label in enumerate(("=cat", "dog")):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for row in range(30):
            Image.new("RGB", (64, 64), (255 * place, row, 0)).save(tmp_path / "pets" / label / f"{row}.png")
    assert run("init", "pets") == 0
    assert not any(
        line.startswith(("=", "'=")) or ",=" in line for line in (tmp_path / "pets.csv").read_text().split("\n")
    )
    assert look_at(load_experiment("pets.yaml")).counts.keys() == {"'=cat", "dog"}


def test_folders_of_people_are_named_and_one_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in ("men", "women"):
        (tmp_path / "a" / label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "a" / label / "1.png")
    _, guess = picture_recipe(tmp_path / "a", list_pictures(tmp_path / "a"), tmp_path / "a.csv", "a")
    assert "'men' and 'women' may say who people are. A model would be trained to predict that." in guess.said[1]
    (tmp_path / "a" / "men" / "1.png").unlink()
    with pytest.raises(DataError, match="holds pictures of one class alone, 'women'"):
        list_pictures(tmp_path / "a")


@pytest.mark.parametrize("whole", [True, False])
def test_a_saved_set_of_the_library(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    rows = reviews().drop(columns="price")
    frame = datasets.Dataset.from_pandas(rows).class_encode_column("verdict")
    saved = frame if whole else datasets.DatasetDict({"train": frame, "dev": frame, "test": frame})
    saved.save_to_disk("posts")
    assert run("init", "posts") == 0
    data = data_of(Path("posts.yaml").read_text())
    assert data["name"] == "hub"
    assert data["path"] == str(tmp_path / "posts")
    assert (data["text_column"], data["target"], data["id_column"]) == ("review", "verdict", "review_id")
    assert data["sensitive"] == ["gender"]
    splits = [data[f"{split}_split"] for split in ("train", "validation", "test")]
    assert splits == (["train", None, None] if whole else ["train", "dev", "test"])
    look = look_at(load_experiment("posts.yaml"))
    assert sum(map(sum, look.counts.values())) == (160 if whole else 480)
    assert "Training opens 'review' (the text), 'verdict' (the class)." in look.said
    assert list(look.counts) == ["bad", "good"]


def test_a_saved_set_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    pictures = [{"bytes": drawn(row), "path": None} for row in range(120)]
    columns = {"photo": pictures, "kind": ["cat", "dog"] * 60}
    features = datasets.Features({"photo": datasets.Image(), "kind": datasets.Value("string")})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk("pets")
    assert run("init", "pets") == 0
    data = data_of(Path("pets.yaml").read_text())
    assert (data["name"], data["image_column"], data["target"]) == ("hub", "photo", "kind")
    assert sum(map(sum, look_at(load_experiment("pets.yaml")).counts.values())) == 120


def test_a_folder_as_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "library")
    Path("posts/data").mkdir(parents=True)
    Path("posts/README.md").write_text("# Posts")
    frame = datasets.Dataset.from_pandas(reviews().drop(columns="price")).class_encode_column("verdict")
    for name, rows in (
        ("train-00000-of-00002", (0, 60)),
        ("train-00001-of-00002", (60, 120)),
        ("test-00000-of-00001", (120, 160)),
    ):
        frame.select(range(*rows)).to_parquet(f"posts/data/{name}.parquet")
    assert run("init", "posts") == 0
    data = data_of(Path("posts.yaml").read_text())
    assert (data["name"], data["text_column"], data["target"]) == ("hub", "review", "verdict")
    assert (data["validation_split"], data["test_split"]) == (None, "test")
    look = look_at(load_experiment("posts.yaml"))
    assert list(look.counts) == ["bad", "good"]  # names that the file holds beside its codes
    assert sum(map(sum, look.counts.values())) == 160

    Path("pets").mkdir()
    pictures = [{"bytes": drawn(row), "path": None} for row in range(120)]
    features = datasets.Features({"photo": datasets.Image(), "kind": datasets.Value("string")})
    pets = datasets.Dataset.from_dict({"photo": pictures, "kind": ["a cat on a mat", "a dog"] * 60}, features=features)
    pets.to_parquet("pets/train.parquet")
    assert run("init", "pets") == 0
    data = data_of(Path("pets.yaml").read_text())
    assert (data["name"], data["image_column"], data["target"]) == ("hub", "photo", "kind")
    assert sum(map(sum, look_at(load_experiment("pets.yaml")).counts.values())) == 120
    with pytest.raises(DataError, match="looks like a text or a picture's file"):
        write_recipe(Path("pets/train.parquet"))  # one file of pictures: its folder is what a recipe names


def drawn(row: int) -> bytes:
    raw = io.BytesIO()
    Image.new("RGB", (8, 8), (row, 0, 0)).save(raw, "PNG")
    return raw.getvalue()


def test_a_folder_of_tables_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("posts/train").mkdir(parents=True)
    rows = reviews()
    for name, part in (("train/0", rows[:60]), ("train/1", rows[60:120]), ("validation", rows[120:140])):
        part.to_parquet(f"posts/{name}.parquet")
    rows[140:].to_parquet("posts/test-00000-of-00001.parquet")
    assert run("init", "posts") == 0
    look = look_at(load_experiment("posts.yaml"))
    assert [sum(column) for column in zip(*look.counts.values(), strict=True)] == [120, 20, 20]


@pytest.mark.parametrize(("rows", "updates"), [(20, 300), (417, 300), (5_000, 300), (100_000, 1_600)])
def test_epochs_and_batches_are_for_the_size_of_the_table(rows: int, updates: int) -> None:
    epochs, batch = _budget(rows, 3)
    made = epochs * 0.7 * rows / batch
    assert updates <= made < 1.2 * updates
    assert 0.7 * rows / batch >= 7
