"""A first recipe for a table of one's own: which column is what, guessed from names and from its first rows."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.data.splits import SPLIT_WORDS, SPLITS_SETTING, known_splits
from levelhead.data.text_csv import TextCsv
from levelhead.data.text_files import ANY_SUFFIXES, NUMBER, first_rows, is_saved, table_files
from levelhead.plain_yaml import read_yaml
from levelhead.report.text import joined
from levelhead.runs.options import build_data, override, section
from levelhead.types import ConfigError, DataError, quoted, require_columns

BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"
LOOKED_AT = 2000  # rows
MOST_CLASSES = 20
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")

# What a column's name may say of people. A list for guessing, and no definition of anything.
DEMOGRAPHIC = frozenset(
    """
    age ages birth birthday birthdate dob born gender genders sex sexes male female man woman men women race races
    racial ethnicity ethnic ethnicities hispanic latino black white asian skin complexion nationality national
    citizenship citizen immigrant immigration migrant religion religious faith muslim christian jewish hindu
    disability disabled disabilities handicap pregnant pregnancy orientation lgbt lgbtq transgender marital married
    veteran caste tribe accent dialect demographic demographics minority protected sensitive group groups region
    country zip zipcode postcode subgroup subgroups identity identities heterosexual homosexual gay lesbian bisexual
    queer nonbinary latina latinx african indian chinese buddhist sikh atheist catholic illness
    """.split()  # noqa: SIM905 (a list of words reads better so)
)
# Values that say who people are, and those that may stand beside them. They are looked at in small letters.
WHO = frozenset(
    """
    male female man woman men women boy girl nonbinary non-binary transgender cisgender black white asian hispanic
    latino latina caucasian african-american indian arab muslim christian jewish hindu buddhist atheist catholic
    heterosexual homosexual bisexual gay lesbian married single divorced widowed
    """.split()  # noqa: SIM905
) | {"african american"}
NEUTRAL = frozenset(
    ("", "m", "f", "other", "others", "unknown", "none", "na", "n/a", "not stated", "prefer not to say")
)
COUNTS = frozenset("count counts number num n total sum votes likes annotators raters".split())  # noqa: SIM905
MOST_SPLITS = 10
"""Values that a column of splits may have."""
TEXT = ("text", "sentence", "comment", "content", "review", "tweet", "post", "body", "message", "document", "question")
PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"), ("text_a", "text_b"))
TARGET = ("label", "labels", "target", "class", "category", "y", "sentiment", "toxic", "toxicity", "outcome", "answer")
SPLIT = ("split", "part", "partition", "set", "subset", "fold")
PERSON = re.compile(
    r"(author|user|person|session|patient|speaker|subject|participant|worker)s?[_\W]?(id|name|key|no|nr)?",
    re.IGNORECASE,
)
IDENTIFIER = ("id", "uid", "uuid", "guid", "identifier", "key", "index")


@dataclass
class Guess:
    """What each column of a table is taken for, by the names of the recipe's options, and sentences that say why."""

    inputs: list[str] = field(default_factory=list)
    pictures: bool = False
    target: str = ""
    split: str | None = None
    identifier: str | None = None
    person: str | None = None
    sensitive: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def find_table(path: Path) -> tuple[Path, bool]:
    """Return the table that ``path`` is, or the first of those in the folder that it is, and whether it stands alone.

    Errors: :class:`~levelhead.types.DataError` where there is none, or no telling which.
    """
    if path.is_dir():
        if is_saved(path):
            raise DataError(
                f"{path} was saved by the library datasets. Write a recipe with data: {{name: hub, path: {path}, "
                "target: COLUMN, text_column: COLUMN}, or save a parquet file."
            )
        tables = [one for one in path.iterdir() if one.is_file() and one.name.endswith(ANY_SUFFIXES)]
        if len(tables) == 1 and not any(one.is_dir() and one.name in SPLIT_WORDS for one in path.iterdir()):
            return tables[0], True
        words = [word for word, split in SPLIT_WORDS.items() if split == "train"]
        return table_files(path, *words, suffixes=ANY_SUFFIXES)[0], False
    if not path.exists():
        raise DataError(f"There is no {path}. Give a table ({', '.join(ANY_SUFFIXES)}), or a folder of them.")
    if not path.name.endswith(ANY_SUFFIXES):
        raise DataError(f"{path} does not end in {', '.join(ANY_SUFFIXES)}. Save it as one of these.")
    return path, True


def list_pictures(folder: Path) -> list[tuple[str, str, str]]:
    """Return file, class and split of every picture in a folder that holds a folder for each class.

    Above the classes there may be folders train, validation (or val, valid) and test; else the splits are empty texts.
    Empty where the folder is not one of these, or holds a table, which says what its pictures are.

    Errors: :class:`~levelhead.types.DataError` where there is one class alone.
    """
    if any(one.name.endswith(ANY_SUFFIXES) for one in folder.iterdir()):
        return []
    below = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    known = known_splits([one.name for one in below])
    words = [known.get(one.name) for one in below]
    rows: list[tuple[str, str, str]] = []
    for top, word in zip(below, words, strict=True):
        classes = [top] if None in words else sorted(one for one in top.iterdir() if one.is_dir())
        for one in classes:
            files = sorted(file for file in one.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())
            rows += [
                (file.relative_to(folder).as_posix(), one.name, "" if None in words else word or "") for file in files
            ]
    names = {name for _, name, _ in rows}
    if len(names) == 1:
        raise DataError(
            f"{folder} holds pictures of one class alone, {quoted(next(iter(names)))}: there is nothing to learn."
        )
    return rows


def guess_columns(table: Mapping[str, Sequence[str]], folder: Path, told: Mapping[str, Any] | None = None) -> Guess:
    """Guess what the columns of a table are: texts or pictures, the class, splits, ids, and what is about people.

    ``table`` holds the first rows, and ``folder`` is where files of pictures are looked for. ``told`` has the options
    of the recipe's data that the user named. A column whose name or values say something of people is never an input,
    and never the target unless the user says so; a column of splits, a count and an id are never the target.

    Errors: :class:`~levelhead.types.DataError` where no column can be an input, where none or several can be the
    target, and where a column of splits holds words that are not known.
    """
    guess, told = Guess(), told or {}
    for option in ("target", "split_column", "id_column", "person_column", "text_column", "pair_column", "file_column"):
        if told.get(option) is not None:
            require_columns(list(table), [str(told[option])], "The table")
    asked = [str(name) for name in told.get("sensitive") or ()]
    require_columns(list(table), asked, "The table")
    taken = {str(value) for option, value in told.items() if option.endswith("_column") or option == "target"} | {
        *asked
    }
    unknown = [name for name in table if name not in taken and not looks_demographic(name)]
    by_values = [name for name in unknown if _are_people(table[name])]
    about_people = [name for name in table if name not in taken and (name not in unknown or name in by_values)]
    free = [name for name in table if name not in about_people and name not in asked]
    _guess_split(guess, table, free, told)
    guess.identifier = next((name for name in free if _is_identifier(name, table[name])), None)
    whose = _guess_person(guess, table, free, told)
    free = [name for name in free if name not in (guess.split, guess.identifier, *whose)]

    files = [name for name in free if _are_pictures(table[name], folder)]
    if files:
        picture = told.get("file_column")
        guess.pictures, guess.inputs = True, [picture] if picture in files else files[:1]
    else:
        guess.inputs = _told_texts(free, table, told)
    free = [name for name in free if name not in guess.inputs]
    free += [str(told["target"])] if told.get("target") is not None and told["target"] not in free else []
    targets = [name for name in free if 2 <= _distinct(table[name]) <= MOST_CLASSES and not _is_count(name)]
    # A name says more than the number of values: what is no class is refused later, with a way out.
    classes = [name for name in free if _varies(table[name]) and not _are_words(table[name])]
    named = [str(told["target"])] if told.get("target") else _by_name(classes, TARGET)
    if not guess.inputs:
        raise DataError(
            f"No column of {_list(table)} looks like a text or a picture's file. Is it a table of numbers? levelhead "
            "trains on texts and pictures; predictions of any model are audited by levelhead audit."
        )
    if not (named or targets):
        raise DataError(
            f"No column of {_list(table)} looks like a class: between 2 and {MOST_CLASSES} different values in the "
            f"first {len(next(iter(table.values()))):,} rows, no count, and not about people. Name it: "
            "--set data.target=COLUMN."
        )
    if not named and len(targets) > 1:
        raise DataError(
            f"Several columns may be the class to predict: {_list(targets)}. Name it: --set "
            f"{shlex.quote(f'data.target={targets[-1]}')}."
        )
    guess.target = named[0] if named else targets[0]
    guess.said.append(f"The class to predict is {quoted(guess.target)}.")
    others = [name for name in targets if name != guess.target]
    if others:
        guess.said.append(f"It might also be {_list(others)}: set data.target.")
    what = "picture's file is" if guess.pictures else "text is" if len(guess.inputs) == 1 else "texts are"
    guess.said.append(f"The {what} in {_list(guess.inputs)}.")
    for name in about_people:
        count = _distinct(table[name])
        if 2 <= count <= MOST_CLASSES:
            guess.sensitive.append(name)
    if about_people:
        several = len(about_people) > 1
        why = f"By {'their names' if several else 'its name'}{' or values' if by_values else ''}"
        guess.said.append(
            f"{why}, {_list(about_people)} may say who people are. Training does not open "
            f"{'them' if several else 'it'}."
        )
        many = [name for name in about_people if name not in guess.sensitive]
        if many:
            guess.said.append(
                f"{_list(many)}: one value, or more than {MOST_CLASSES}, and no groups to evaluate by. Save groups in "
                "a column, or audit with levelhead audit --bins."
            )
    rest = [name for name in free if name != guess.target and name not in others]
    if rest:
        guess.said.append(f"Not used: {_list(rest)}.")
    return guess


def _guess_split(
    guess: Guess, table: Mapping[str, Sequence[str]], free: Sequence[str], told: Mapping[str, Any]
) -> None:
    """Find the column of splits, by its name or its values, and what its values represent.

    Errors: :class:`~levelhead.types.DataError` for one that is named like it and holds other words: its rows would be
    dealt again.
    """
    if "split_column" in told:
        guess.split = None if told["split_column"] is None else str(told["split_column"])
        named = [guess.split] if guess.split else []
    else:
        named = _by_name(free, SPLIT)
        guess.split = next((name for name in [*named, *free] if _holds_splits(table[name])), None)
        if guess.split:
            return
    for name in named:
        values = sorted({value.strip() for value in table[name]})
        if told.get("splits") is not None or _holds_splits(table[name]):
            return
        unknown = [value for value in values if not known_splits([value])]
        if unknown and len(values) <= MOST_SPLITS:
            raise DataError(
                f"{quoted(name)} may name the splits, and its values {_list(unknown)} are not known. Say what they "
                f"are: --set {shlex.quote(f'data.split_column={name}')} {SPLITS_SETTING}. If it names none: "
                "--set data.split_column=null."
            )


def _guess_person(
    guess: Guess, table: Mapping[str, Sequence[str]], free: Sequence[str], told: Mapping[str, Any]
) -> list[str]:
    """Find the column that says whom each row is of, and return all that may: by name, and by values that repeat."""
    named = [name for name in free if PERSON.fullmatch(name) and name not in (guess.split, *told.values())]
    whose = [name for name in named if 1 < len(set(table[name])) < len(table[name])]
    if "person_column" in told:
        guess.person = told["person_column"]
        return [*whose, *([guess.person] if guess.person else [])]
    guess.person = max(whose, key=lambda name: len(set(table[name])), default=None)
    if guess.person:
        guess.said.append(
            f"{quoted(guess.person)} may identify people: rows of one person "
            f"{'' if guess.split else 'stay in one split and '}form clusters in intervals. If not: --set "
            "data.person_column=null."
        )
    return whose


def looks_demographic(name: str) -> bool:
    """Say whether a column's name may say something of people: one of its words is on a list."""
    return not DEMOGRAPHIC.isdisjoint(_words(name))


def _is_count(name: str) -> bool:
    """Say whether a column's name says that it counts something."""
    return not COUNTS.isdisjoint(_words(name))


def _are_people(values: Sequence[str]) -> bool:
    """Say whether values say who people are: male and female, or m and f."""
    found = {value.strip().lower().replace("_", " ") for value in values}
    return (not found.isdisjoint(WHO) or {"m", "f"} <= found) and found <= WHO | NEUTRAL


def _words(name: str) -> list[str]:
    return re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def _varies(values: Sequence[str]) -> bool:
    return len({value for value in values if value.strip()}) > 1


COMMENTS = {
    "target": "the class to predict",
    "splits": "what its values represent",
    "id_column": "written beside predictions; training does not see it",
    "person_column": "whom a row is of: such rows stay together in intervals",
}
SENSITIVE = (
    "  # Whom an evaluation compares. Training does not open these columns. [] where no groups are known:",
    "  # groups are joined to the predictions later, levelhead audit --join.",
)
SCRATCH = """\
model:
  hidden_size: 192     # a small vision transformer from scratch
  layers: 8
  heads: 8
  image_size: {size}
train:
  epochs: {epochs}
  batch_size: {batch}
  learning_rate: 5.0e-4
  schedule: cosine
"""
PRETRAINED = """\
model:
  {backbone}     # any {kind} encoder: a name on the Hub, or a folder
  mode: last_encoder     # the backbone is frozen and runs once; fine_tune trains all of it
{cut}train:
  epochs: {epochs}
  batch_size: {batch}
  learning_rate: 1.0e-4
"""
CUT = "  max_length: 128     # longer texts are cut, and counted\n"
TWIN = """\
# The debiased twin: these two lines instead of the two above.
# method:
#   name: dam     # debiased attention in the last layer
"""
UPDATES, MOST_EPOCHS, TRAINING_SHARE = 300, 100, 0.7
"""What a recipe's training aims at; most epochs that it proposes, and the share of a table's rows that it trains on."""


@dataclass(frozen=True)
class Draft:
    """A first recipe: what it is of, the options of its ``data`` and comments on them, its guess and its ``rows``."""

    what: str
    data: dict[str, Any]
    guess: Guess
    rows: int
    comments: dict[str, str] = field(default_factory=dict)

    def text(self, place: str, told: dict[str, Any], method: str, backbone: str | None) -> str:
        """Return the commented YAML, which will stand in ``place``; ``told`` options of the data replace guessed ones.

        The default of ``backbone`` is a sentence encoder for texts, and a network from scratch for pictures.
        """
        name, data = shlex.quote(place) if place.isprintable() else _plain(place), self.data | told
        lines = [
            f"# {_plain(self.what)}: a first recipe; written by levelhead init",
            f"# levelhead data check {name}     # what is in the splits, and what training opens",
            f"# levelhead train {name}",
            f"# Compare with debiased attention: levelhead compare --recipe {name} --methods erm,dam --seeds 0-2",
            "data:",
        ]
        for option, value in data.items():
            comment = (COMMENTS | self.comments).get(option)
            lines += SENSITIVE if option == "sensitive" else ()
            lines.append(f"  {_yaml({option: value})}" + (f"     # {comment}" if comment else ""))
        scratch, plain = self.guess.pictures and backbone is None, method == "erm"
        epochs, batch = _budget(self.rows, 10 if scratch else 3)
        model = (SCRATCH if scratch else PRETRAINED).format(
            size=data.get("image_size", 64),
            epochs=epochs,
            batch=batch,
            backbone=_yaml({"backbone": backbone or BACKBONE}),
            kind="picture" if self.guess.pictures else "text",
            cut="" if self.guess.pictures else CUT,
        )
        lines += ["method:", f"  {_yaml({'name': method})}     # {'plain training; ' * plain}levelhead list methods"]
        selected = "  select: val_loss     # the epoch that is kept: by labels alone\n"
        return "\n".join(lines) + "\n" + TWIN * plain + model + selected


def _budget(rows: int, least: int) -> tuple[int, int]:
    """Return epochs, ``least`` or more, and the batch size: a small table too gives about :data:`UPDATES` updates."""
    trained = max(2, round(TRAINING_SHARE * rows))
    batch = next(size for size in (128, 64, 32, 16, 2) if size <= max(2, trained // 8))
    return max(least, min(MOST_EPOCHS, math.ceil(UPDATES * batch / trained))), batch


def write_recipe(
    path: Path,
    backbone: str | None = None,
    settings: Sequence[str] = (),
    *,
    method: str = "erm",
    place: Path | None = None,
    pictures: Sequence[tuple[str, str, str]] = (),
) -> tuple[str, Guess]:
    """Return a recipe for a table or a folder of tables as YAML, and what was guessed.

    ``settings`` are options of its data, as ``data.target=label``, which are then not guessed. The recipe will stand in
    ``place``. ``pictures`` are those of :func:`list_pictures`, whose table will stand beside it.

    Errors: :class:`~levelhead.types.DataError` where there is no table, or none that can be trained on: its classes are
    those that training would see.
    """
    if wrong := [setting for setting in settings if not re.match(r"data\.[a-z_]+=", setting)]:
        raise ConfigError(f"--set {quoted(wrong[0])}: a first recipe takes options of its data, as data.target=label.")
    told = section(override({}, settings), "data")
    place = place or Path(f"{path.resolve().name.split('.')[0] or 'mine'}.yaml")
    draft = _of_pictures(path, pictures, place.with_suffix(".csv")) if pictures else _of_tables(path, told)
    text = draft.text(str(place), told, method, backbone)
    data = build_data(section(read_yaml(text, "the recipe"), "data"))
    if not pictures and isinstance(data, TextCsv | ImageFolderCsv):
        data.class_names()
    return text, draft.guess


def _of_pictures(folder: Path, rows: Sequence[tuple[str, str, str]], table: Path) -> Draft:
    """Draft a recipe for pictures in a folder for each class, whose list will be written to ``table``."""
    guess = Guess(inputs=["file"], pictures=True, target="label", split="split" if rows[0][2] else None)
    names = sorted({label for _, label, _ in rows})
    guess.said.append(f"{len(rows):,} pictures, of the classes {_list(names)} by their folders.")
    about_people = [label for label in names if looks_demographic(label)]
    if about_people:
        guess.said.append(
            f"By the names of their folders, {_list(about_people)} may say who people are. A model would be trained "
            "to predict that."
        )
    return _of_table(table.name, folder, guess, len(rows), {"csv": str(table.resolve())})


def _of_tables(path: Path, told: Mapping[str, Any]) -> Draft:
    file, alone = find_table(path)
    table = first_rows(file, LOOKED_AT)
    if not any(table.values()):
        raise DataError(f"{file} has no rows.")
    folder = (file.parent if alone else path).resolve()
    guess, rows = guess_columns(table, folder, told), len(next(iter(table.values())))
    if guess.pictures and not alone:
        raise DataError(f"{path}: pictures are read from one csv with a split column, and there are several tables.")
    named = {"csv" if guess.pictures else "file": file.name} if alone else {}
    return _of_table(file.name if alone else folder.name, folder, guess, rows, named)


def _of_table(what: str, folder: Path, guess: Guess, rows: int, named: Mapping[str, str]) -> Draft:
    """Draft a recipe for the table that ``named`` has, or for those of the splits in ``folder`` where it has none."""
    data: dict[str, Any] = {"name": "image-folder-csv" if guess.pictures else "text-csv"}
    data |= {"folder": str(folder.resolve()), **named}
    options = ("file_column",) if guess.pictures else ("text_column", "pair_column")
    data |= dict(zip(options, guess.inputs, strict=False)) | {"target": guess.target, "sensitive": guess.sensitive}
    comments = {}
    if named and guess.split:
        data["split_column"] = guess.split
    elif named:
        by = guess.person if guess.person else "number" if guess.pictures else "text"
        data |= {"validation_share": 0.1, "test_share": 0.2}
        comments["validation_share"] = f"rows are assigned to the splits by a hash of their {_plain(by)}"
    # Pictures have names of their own.
    columns = {"id_column": None if guess.pictures else guess.identifier, "person_column": guess.person}
    data |= {option: column for option, column in columns.items() if column}
    return Draft(what, data, guess, rows, comments)


def refuse_existing(out: Path, force: bool) -> None:
    """Raise :class:`~levelhead.types.ConfigError` if a file would be overwritten."""
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already. Choose another --out, or overwrite it with --force.")


def _texts(free: Sequence[str], table: Mapping[str, Sequence[str]]) -> list[str]:
    for first, second in PAIRS:
        pair = [name for wanted in (first, second) for name in free if name.lower() == wanted]
        if len(pair) == 2:
            return pair
    long = {name: sum(map(len, table[name])) / len(table[name]) for name in free if _are_words(table[name])}
    named = _by_name(list(long), TEXT)
    if named:
        return named[:1]
    return [max(long, key=lambda name: long[name])] if long else []


def _told_texts(free: Sequence[str], table: Mapping[str, Sequence[str]], told: Mapping[str, Any]) -> list[str]:
    """Return the columns of texts: those that the user named, and else a guess."""
    text, pair = told.get("text_column"), told.get("pair_column")
    found = [str(text)] if text is not None else _texts([name for name in free if name != pair], table)
    if "pair_column" not in told:
        return found
    return [*found[:1], *([str(pair)] if found and pair is not None else [])]


def _are_words(values: Sequence[str]) -> bool:
    """Say whether a column holds texts: most are several words, and few stand there twice."""
    several = sum(len(value.split()) >= 3 for value in values)
    return several > len(values) / 2 and _distinct(values) > min(MOST_CLASSES, len(values) / 2)


def _are_pictures(values: Sequence[str], folder: Path) -> bool:
    files = [value for value in values if value][:20]
    return bool(files) and all(value.lower().endswith(PICTURES) for value in files) and (folder / files[0]).is_file()


def _holds_splits(values: Sequence[str]) -> bool:
    words = set(values)
    found = known_splits(words)
    return len(found) == len(words) and "train" in found.values() and len(set(found.values())) > 1


def _is_identifier(name: str, values: Sequence[str]) -> bool:
    word = re.split(r"[^a-z]+", name.lower())[-1] if not name.lower().endswith("id") else "id"
    return word in IDENTIFIER and _distinct(values) == len(values) and not any(" " in value for value in values)


def _by_name(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the names that are on a list, in the list's order."""
    return [name for word in wanted for name in names if name.lower() == word]


def _distinct(values: Sequence[str]) -> int:
    """Return how many values there are, or many where they look like measurements."""
    found = {value for value in values if value.strip()}
    if any("." in value for value in found) and all(NUMBER.fullmatch(value) for value in found) and len(found) > 5:
        return MOST_CLASSES + 1
    return len(found)


def _list(names: Iterable[str]) -> str:
    shown = list(map(quoted, names))
    return joined(shown[:12] + ["others"] * (len(shown) > 12))


def _yaml(option: Mapping[str, Any]) -> str:
    """Return an option and its value as one line of YAML."""
    return yaml.safe_dump(option, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)[1:-2]


def _plain(name: str) -> str:
    """Return a name as a comment may hold it: on one line."""
    return re.sub(r"[^\w .@+-]", "_", name)[:80]
