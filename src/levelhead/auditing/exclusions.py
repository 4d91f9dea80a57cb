"""What does not go together in an audit: one table, which Python, the command line, the app and the docs read.

A rare combination that fails gets a row here, and no code elsewhere. Options go by the names that
:func:`levelhead.audit_table` has for them; an error spells them as Python or the command line does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from levelhead.types import ConfigError

DECISIONS, UNRECORDED = "decisions", "unrecorded groups"
"""Kinds of an audit that no option of their own names: without a label, and with a proxy or its relatives."""
KNOWN = ("labelled_group", "proxy", "proxy_probabilities", "shares", "randomized_response")
"""Options that say what is known of groups that are not recorded."""
OF_CLASSES = ("scale", "threshold", "weight", "costs", "ignore_label", "cluster", "positive", "label_map", "parts")
"""Options of audits of classes alone."""


class Pair(NamedTuple):
    """An option, those that do not go with it, and why; ``{given}`` are those of them that were given."""

    option: str
    others: Collection[str]
    why: str


class Lacks(NamedTuple):
    """What a verb cannot do without: each name with the options of which one is enough; and what to say and show."""

    why: str
    needs: Mapping[str, Collection[str]]
    example: str


class Need(NamedTuple):
    """An option that makes no sense without one of others, and what to do."""

    option: str
    others: Collection[str]
    why: str


AUDIT = Lacks(
    "An audit needs {data}, {groups} and {prediction} (or {score}); missing: {given}.",
    {"data": ["data"], "groups": ["groups", UNRECORDED], "prediction": ["prediction", "score"]},
    "levelhead audit --example",
)
EXPLANATION = Lacks(
    "An explanation needs {data}, {label}, {score} and {groups}; missing: {given}.",
    {name: [name] for name in ("data", "label", "score", "groups")},
    "levelhead explain predictions.csv --label y --score p --group sex",
)
RULE = Lacks(
    "A rule needs {data}, {score} and {groups}; missing: {given}.",
    {name: [name] for name in ("data", "score", "groups")},
    "levelhead postprocess valid.csv --score p --group sex --label y",
)
NEEDS = (
    Need("top", ("score",), "A ranking needs the column that rows are ranked by: name it with {score}."),
    Need("threshold", ("score",), "{threshold} decides scores: name their column with {score}."),
    Need("scale", ("score",), "{scale} says what scores are: name their column with {score}."),
    Need("numbers", ("label",), "{numbers} compares predictions with true numbers: name their column with {label}."),
    Need("numbers", ("prediction",), "{numbers} needs predictions: name their column with {prediction}."),
    Need("control", ("prediction", "top"), "{control} compares predicted classes, not scores: add {prediction}."),
    Need("one_threshold", ("label",), "{one_threshold} is chosen by labels: name their column with {label}."),
    *(
        Need(
            one,
            ("label", "prediction", "top", "example"),
            "{" + one + "} is about labels: name their column with {label}.",
        )
        for one in ("positive", "label_map", "ignore_label")
    ),
    Need("join", ("on",), "{join} needs {on}, the column of ids in both tables."),
    Need("on", ("against", "join"), "{on} matches the rows of two tables: name the other with {against} or {join}."),
    Need("randomized_response", ("groups",), "{randomized_response} needs the column of the answers: {groups}."),
)
PAIRS = (
    Pair(
        "example",
        ("data", "label", "prediction", "groups", "score", "weight", "cluster", "threshold", "against", "on", "numbers",
         "join", "top", "time", "along", "control", "count", "pairs"),
        "{example} has its own file and columns: remove {given}, or {example}.",
    ),
    Pair("join", ("against",), "{join} and {against} both match rows: audit the other model in a second run."),
    *(
        Pair(one, ("groups",), "{groups} names the group of every row: remove it, or {" + one + "}.")
        for one in KNOWN if one != "randomized_response"
    ),
    Pair(
        UNRECORDED,
        ("score", "top", "numbers", "threshold", "scale", "weight", "count", "cluster", "time", "control", "along",
         "against", "intersect", "bins", "missing", "reference", "min_count", "favourable", "costs", "parts",
         "pairs"),
        "An audit of groups that are not recorded cannot be used with {given}. Leave that out.",
    ),
    *(
        Pair(one, (*others, "labelled_group", "proxy"),
             "{" + one + "} is audited alone: remove {given}, or audit it in a second run.")
        for one, others in (("proxy_probabilities", ("shares", "randomized_response")),
                            ("randomized_response", ("shares",)), ("shares", ()))
    ),
    Pair(
        "pairs",
        ("top", "numbers", "against", "control", "time", "along", "count", "intersect", "missing", "reference",
         "min_count", *OF_CLASSES),
        "{pairs} compares the two rows of each pair alone: remove {given}, or {pairs}.",
    ),
    Pair(
        "top",
        ("label", "prediction", "against", "control", "time", "along", "numbers", "favourable", "metrics", *OF_CLASSES),
        "A ranking reads no outcomes and no classes: remove {given}, or {top}.",
    ),
    Pair(
        "numbers",
        ("score", "time", "favourable", "metrics", *OF_CLASSES),
        "{given} cannot be used with {numbers}: remove one of them.",
    ),
    Pair(
        DECISIONS,
        ("score", "against", "control", "along", "metrics", *OF_CLASSES),
        "{given} needs outcomes: name their column with {label}, or leave it out. For selection rates alone, {label} "
        "takes a copy of the decisions.",
    ),
    Pair(
        "numbers",
        ("control",),
        "{control} compares rates of classes, not errors of {numbers}: audit its levels one by one, or cross them with "
        "{intersect}.",
    ),
    Pair(
        "numbers",
        ("against",),
        "{against} compares predicted classes. For a change of {numbers}, name the absolute errors of the old model as "
        "{label} and those of the new one as {prediction}.",
    ),
    Pair("metrics", ("label_map",), "{metrics} take classes as they are: remove {given}, and write the columns alike."),
    Pair("threshold", ("prediction",), "{prediction} and {threshold} both decide the rows. Leave one of them out."),
    Pair(
        "weight",
        ("metrics", "along", "score", "against", "time", "costs", "cluster", "count", "parts"),
        "{given} cannot be used with {weight}: no interval is known to hold. Scores can be decided first, and the "
        "decisions named as {prediction}.",
    ),
    Pair(
        "cluster",
        ("metrics", "along", "control", "time", "costs", "count", "parts"),
        "{given} cannot be used with {cluster}: the intervals would ignore the clusters. Leave one of them out.",
    ),
)  # fmt: skip


class Refused(ConfigError):  # noqa: N818  (reads as the state it reports)
    """Options that do not go together, in the words of Python; ``typed`` says it in those of the command line.

    ``example`` is a command that shows what to type.
    """

    def __init__(
        self, sentence: str, options: Collection[str], names: Mapping[str, str] | None = None, example: str = ""
    ) -> None:
        self.sentence, self.options, self.example = sentence, options, example
        super().__init__(self.said(lambda name: (names or {}).get(name, f"{name}=")))

    @property
    def typed(self) -> str:
        """The sentence as who types a command needs it."""
        return self.said(dashed) + (f" Example: {self.example}" if self.example else "")

    def said(self, spell: Callable[[str], str]) -> str:
        """Return the sentence with options as ``spell`` writes them."""
        return self.sentence.format_map(_Spelled(spell, self.options))


class _Spelled(dict[str, str]):
    """Options in the words of who asks; ``given`` are several of them."""

    def __init__(self, spell: Callable[[str], str], given: Collection[str]) -> None:
        *most, last = map(spell, given)
        super().__init__(given=f"{', '.join(most)} and {last}" if most else last)
        self.spell = spell

    def __missing__(self, name: str) -> str:
        return self.spell(name)


TYPED = {"data": "FILE", "groups": "--group", "costs": "--cost", "parts": "parts=", "metrics": "metrics=",
         "missing": "missing="}  # fmt: skip
"""Options that are no ``--option`` of their own name."""
ARRAYS = {"data": "rows", "label": "y_true", "prediction": "y_pred", "score": "scores=", "weight": "sample_weight=",
          "groups": "sensitive_features=", "control": "control_features=", "count": "counts="}  # fmt: skip
"""What :func:`levelhead.audit` calls them, where that is another name."""


def literal(text: object) -> str:
    """Return a text for a sentence in which it is no option."""
    return str(text).replace("{", "{{").replace("}", "}}")


def dashed(name: str) -> str:
    """Return an option as it is typed."""
    return TYPED.get(name, f"--{name.replace('_', '-')}")


def given_of(asked: Mapping[str, Any]) -> set[str]:
    """Return the options that were given, and the kinds that follow from them; 0 is given, and False is not."""
    there = {name for name, value in asked.items() if _is_there(value)}
    there -= {name for name in DEFAULTS if asked.get(name) == DEFAULTS[name]}
    if there & set(KNOWN):
        there.add(UNRECORDED)
    elif not there & {"label", "top", "pairs", "example", "delta"}:  # a rule needs no outcomes
        there.add(DECISIONS)
    return there


def _is_there(value: Any) -> bool:
    if value is None or isinstance(value, (bool, str)):
        return value not in (None, False)
    return len(value) > 0 if isinstance(value, (list, tuple, Mapping)) else True  # a table is one without rows, too


DEFAULTS = {"scale": "auto", "missing": "leave out", "min_count": 10}
"""Values that say nothing."""


def clashing(option: str, there: Collection[str]) -> list[str]:
    """Return which of the options that are there do not go with one."""
    rows = [one for one in PAIRS if option in (one.option, *one.others)]
    found = [other for one in rows for other in (one.others if one.option == option else (one.option,))]
    return [one for one in dict.fromkeys(found) if one in there and one != DECISIONS]


def refuse(asked: Mapping[str, Any], names: Mapping[str, str] | None = None, lacks: Lacks = AUDIT) -> None:
    """Raise :class:`Refused` for the first row of the table that the options break, before anything is read.

    Args:
        asked: the options by name, with their values.
        names: what Python calls them, where that is another name.
        lacks: what nothing can be done without.
    """
    there = given_of(asked)
    for row in PAIRS:
        if row.option in there and (clash := [one for one in row.others if one in there]):
            raise Refused(row.why, clash, names)
    for need in NEEDS:
        if need.option in there and not there & set(need.others):
            raise Refused(need.why, [need.option], names)
    lacking = [name for name, any_of in lacks.needs.items() if not there & set(any_of)]
    if lacking and "example" not in there:
        raise Refused(lacks.why, lacking, names, lacks.example)


def as_markdown() -> str:
    """Return the table for the docs."""
    rows: dict[str, list[str]] = {}
    for row in PAIRS:
        rows.setdefault(_listed(row.others), []).append(row.option)
    lines = [f"| {_listed(options)} | {others} |" for others, options in rows.items()]
    return "\n".join(["| option | goes without |", "|---|---|", *lines])


def _listed(names: Collection[str]) -> str:
    return ", ".join(name if " " in name or name == DECISIONS else f"`{dashed(name)}`" for name in names)
