"""Recipes and grids as nobody should write them: each ends in an experiment, or in one short sentence.

Seeded, so that a failure comes again: its message names the case. No case may change its file, or show in its error
what the file holds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from shares import attempt, cases

from levelhead.bench.grid import find_grid, make_cells, parse_methods, parse_options, parse_seeds, read_grid
from levelhead.lm.klaad_training import load_klaad
from levelhead.runs.recipe import data_recipe, find_recipe, load_experiment, read_recipe, recipe_folder
from test_root_refusals import bomb

pytestmark = pytest.mark.slow

LONGEST_ECHO = 160  # characters of a file in a row that an error may repeat: two names

PLAIN = ["portraits_dam", "utkface64_erm_small", "hatexplain_erm_le_small", "multinli_erm_ft", "hatexplain_dam_le"]
PATHS = [
    *("data", "data.name", "data.root", "data.target", "data.sensitive", "data.correlation", "data.seed"),
    *("data.train_size", "data.validation_share", "method", "method.name", "method.base", "method.debias"),
    *("method.debias.alpha", "method.debias.top_t", "method.debias.preset", "method.base.upweight", "model"),
    *("model.hidden_size", "model.heads", "model.layers", "model.backbone", "model.mode", "model.dropout", "train"),
    *("train.epochs", "train.batch_size", "train.learning_rate", "train.select", "train.trackers", "train.threads"),
    *("train.keep_epochs", "train.precision", "seed", "name", "", ".", "a.b.c", "train.", "..", "data.name.x"),
]
TEXTS = [
    *("", " ", "~", "no", "yes", "True", "null", "1:30", "1:30.5", "190:20:30", "010", "0x1F", "0o17", "1_000", "="),
    *("1e3", "1e-400", "1e400", ".inf", "-.inf", ".nan", "-0", "+1", "1.", "-1", "0", "3", "1.5", "2001-01-01", "<<"),
    *("9" * 5000, "-" + "9" * 5000, "9" * 5000 + ".5", str(2**63), str(2**64), str(-(2**63) - 1), "0x" + "f" * 5000),
    *("[" * 5000, "{" * 5000, "[" * 20 + "]" * 20, "[1, 2]", "{a: 1}", "{}", "[]", "{1: 2}", "{null: 1, ~: 2}"),
    *("- - -", "&a [*a]", "*nobody", "&a 1", "!!int '1:30'", "!!binary aGk=", "!!python/object:os.system {}", "!x y"),
    *('"\\0"', '"\\ud83d"', '"\\ud83d\\ude00"', '"\\e[31m"', '"\\u202e"', '"\\UFFFFFFFF"', "'", '"', "|", ">", "%"),
    *("@", "`", "\x1b[31m", "\x85", "\u2028", "\u202eevil", "👩‍👩‍👧", "ü" * 300, "x" * 100_000, "a b " * 5000, "\x00"),
    *("\x7f", "\ufeff", "erm", "dam", "dam+jtt", "dam+dam", "jtt+dam", "dam+", "+", "portraits", "hub", "text-csv"),
    *("val_loss", "../..", "/dev/null", "x" * 300),
]
SECRET = "the diagnosis of patient 4711 is none of your business, and neither is that of patient 4712; "


FILES: list[bytes] = [
    b"",
    b"# only a comment\n",
    b"\x00\x01\x02\x03",
    b"\xff\xfe\x00d\x00a",
    b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
    b"PK\x03\x04" + b"\x00" * 500,
    b"\x1f\x8b\x08\x00" + b"\x55" * 500,
    b"PAR1" + b"\x15\x04" * 500,
    ("text,label\n" + f'"{SECRET}",1\n' * 7000).encode(),
    (SECRET * 9000).encode(),
    ("- " + SECRET).encode() * 3,
    ("data: " + SECRET * 300).encode(),
    ("'" + SECRET * 300).encode(),
    (SECRET + ": [").encode(),
    b"x" * 2_000_000,
    b"a: b\n" * 30_000,
    "\n".join(f"k{i}: {i}" for i in range(40_000)).encode(),
    ("[" * 5000).encode(),
    ("{a: " * 5000).encode(),
    ("- " * 5000).encode(),
    ("? " * 5000).encode(),
    ("[" + "1, " * 200_000 + "1]").encode(),
    bomb(12, 9).encode(),
    bomb(3, 9).encode(),
    ("a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 400))).encode(),
    b"data: &d {name: *d}\n",
    b"train: {epochs: 1}\ntrain: {epochs: 2}\n",
    b"%YAML 9999999999999999.1\n---\na: 1\n",
    b"--- a\n--- b\n",
    b"data: {name: portraits}\nmethod: {name: erm}\nseed: 18446744073709551616\n",
    b"data: {name: portraits}\nmethod: {name: erm}\nname: {a: [b]}\n",
    b"data: [1]\nmethod: [2]\nmodel: [3]\ntrain: [4]\n",
    "data:\n  name: portraits\n  näme: \u202e\n".encode(),
    b"\xef\xbb\xbfdata: {name: portraits}\nmethod: {name: erm}\n",
]


def tried(case: str, action: Callable[[], Any], content: str = "") -> bool:
    """Say whether it worked; the sentence that refuses it repeats no long part of a file."""
    _, said = attempt(case, action)
    echoed = (said[start : start + LONGEST_ECHO] for start in range(max(0, len(said) - LONGEST_ECHO + 1)))
    assert not any(part in content for part in echoed), (case, said)
    return not said


def tried_file(case: str, file: Path, content: bytes, action: Callable[[], Any]) -> bool:
    file.write_bytes(content)
    worked = tried(case, action, content.decode("utf-8", "replace"))
    assert file.read_bytes() == content, f"{case} changed its file"
    return worked


def nested(value: Any, keys: list[str]) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


@pytest.mark.parametrize("chunk", range(4))
def test_settings(chunk: int) -> None:
    chance = random.Random(f"settings {chunk}")
    worked = 0
    for number in cases(80):
        settings = [f"{chance.choice(PATHS)}={chance.choice(TEXTS)}" for _ in range(chance.choice((1, 1, 1, 3)))]
        if chance.random() < 0.1:
            settings.append(chance.choice(TEXTS))
        recipe = chance.choice(PLAIN)
        case = f"case {chunk}.{number}: {recipe} {[setting[:60] for setting in settings]}"
        worked += tried(case, lambda recipe=recipe, settings=settings: load_experiment(recipe, settings))
    assert worked  # some of this is right: a test that only sees refusals would see nothing


@pytest.mark.parametrize("chunk", range(4))
def test_recipes_with_hostile_values(chunk: int, tmp_path: Path) -> None:
    chance = random.Random(f"values {chunk}")
    file = tmp_path / "recipe.yaml"
    for number in cases(80):
        recipe: dict[str, Any] = read_recipe(recipe_folder() / f"{chance.choice(PLAIN)}.yaml")
        *parents, last = chance.choice(PATHS).split(".")
        place = recipe
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        kind = chance.randrange(4)
        text = chance.choice(TEXTS)
        value = [text, [text] * 3, {text[:200]: text}, nested(1, ["deeper"] * chance.choice((3, 40)))][kind]
        place[last if chance.random() < 0.8 else text[:200]] = value
        written = json.dumps(recipe) if chance.random() < 0.5 else yaml.safe_dump(recipe, allow_unicode=True)
        case = f"case {chunk}.{number}: {parents} {last} {str(value)[:60]!r}"
        tried_file(case, file, written.encode("utf-8", "surrogatepass"), lambda: load_experiment(file))


@pytest.mark.parametrize("number", range(len(FILES)))
def test_files_that_are_no_recipes(number: int, tmp_path: Path) -> None:
    content = FILES[number]
    readers: dict[str, Callable[[Path], Any]] = {
        "recipe.yaml": load_experiment,
        "grid.yaml": lambda file: make_cells(read_grid(file), tmp_path / "runs"),
        "klaad.yaml": load_klaad,
        "texts.csv": load_experiment,
    }
    for at in cases(len(readers), 2):  # in turn: each file by two of them
        name, read = list(readers.items())[(number + at) % len(readers)]
        file = tmp_path / name
        tried_file(f"file {number} as {name}", file, content, lambda file=file, read=read: read(file))


@pytest.mark.parametrize("chunk", range(2))
def test_grids(chunk: int, tmp_path: Path) -> None:
    chance = random.Random(f"grids {chunk}")
    file = tmp_path / "grid.yaml"
    for number in cases(60):
        content: dict[str, Any] = {
            "base": chance.choice(["portraits_erm", "nobody", {"data": {"name": "portraits"}}, [1], None]),
            "seeds": chance.choice([[0], [0, 1], [0, 0], [True], [2**63], ["1"], "0-2", None, [-1], list(range(3000))]),
            "rows": {
                chance.choice(["a", "b", *TEXTS])[:300]: chance.choice(
                    [{}, None, {chance.choice(PATHS): chance.choice(TEXTS)}, {"method": {"name": "dam+jtt"}}, [1], "x"]
                )
                for _ in range(chance.choice((1, 2, 4)))
            },
            chance.choice(["set", "sett", "1"]): chance.choice(
                [{}, {"train.epochs": 1}, {"train.epochs=5": 1}, [1], None]
            ),
        }
        text = yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogatepass")
        tried_file(f"grid {chunk}.{number}", file, text, lambda: make_cells(read_grid(file), tmp_path / "runs"))


def test_lists_of_methods_seeds_and_values() -> None:
    more = ["0-4", "4-0", "0-99999999999", "²", "٣", "0-", "-1", "0--1", "1,,2", "erm,", ",", "a=1,2", "a=[1,2", "=1"]
    for text in [*TEXTS, *more, "a="]:
        for parse in (parse_methods, parse_seeds, lambda one: parse_options([one, "a=1"])):
            tried(f"{parse} {text[:60]!r}", lambda parse=parse, text=text: parse(text))
        tried(f"--try {text[:60]!r}", lambda text=text: parse_options([f"method.upweight={text}"]))
        for find in (find_recipe, find_grid, data_recipe, load_klaad):
            tried(f"{find.__name__} {text[:60]!r}", lambda find=find, text=text: find(text))
