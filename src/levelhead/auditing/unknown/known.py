"""Information on the groups instead of the attribute: labelled rows, proxies, shares, strata, answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelhead.auditing.unknown.privacy import Response, read_responses
from levelhead.csv_form import form_of, records, refuse_irregular
from levelhead.types import ConfigError, DataError, listed, quoted

FEWEST_LABELLED = 100
MOST_GROUPS = 8
WHAT_HELPS = (
    "What would help: the group of 100 rows or more (--labelled-group), three proxies (--proxy), probabilities of the "
    "groups (--proxy-probabilities), or their shares (--shares)."
)
NOTHING_KNOWN = "Nothing is known of the groups, so any gap up to 100 points is possible."


@dataclass(frozen=True)
class Shares:
    """Shares of the groups, of all rows or by stratum.

    ``groups`` are their names; ``overall`` (groups,) for all rows, or ``by_stratum`` with one such list a stratum.
    """

    groups: tuple[str, ...]
    overall: tuple[float, ...] | None = None
    by_stratum: Mapping[str, tuple[float, ...]] | None = None

    def of(self, groups: Sequence[str]) -> tuple[float, ...]:
        """Return the shares of all rows in the order of ``groups``; of one group of two, the other has the rest.

        Raises:
            ConfigError: the shares are of other groups.
        """
        rest, *given = self.groups
        own = dict(zip(self.groups, self.overall or (), strict=True))
        alone = len(given) == 1 and rest == f"not {given[0]}"
        if alone and len(groups) == 2 and given[0] in groups:
            own = {one: own[one if one == given[0] else rest] for one in groups}
        if set(own) != set(groups):
            named = ", ".join(map(quoted, (given if alone else self.groups)[:MOST_GROUPS]))
            raise ConfigError(
                f"--shares names {named}; the proxies name {', '.join(map(quoted, groups))}. Name the proxies’ groups, "
                "in the same words."
            )
        return tuple(own[one] for one in groups)


def read_shares(given: Sequence[str], strata: str | None = None) -> Shares:
    """Read ``women=0.52`` (repeated, or with commas), or the path of a csv of shares by stratum.

    Raises:
        ConfigError: shares that are no fractions, do not add to 1, or name a group twice.
        DataError: a csv that cannot be read.
    """
    if len(given) == 1 and given[0].lower().endswith((".csv", ".tsv")):
        return _shares_file(Path(given[0]), strata)
    shares: dict[str, float] = {}
    for text in ",".join(given).split(","):
        name, sign, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not sign or not name.strip() or not 0 < value < 1:
            raise ConfigError(f"--shares {quoted(text)}: write a group and its share of the rows, as in women=0.52.")
        if name.strip() in shares:
            raise ConfigError(f"--shares names {quoted(name.strip())} twice.")
        shares[name.strip()] = value
    return shares_from(shares)


def read_probabilities(given: Sequence[str]) -> dict[str, str]:
    """Read ``white=p_w,black=p_b`` (repeated, or with commas): the column with the probability of each group.

    Raises:
        ConfigError: a part that is no group and column, or a group that is named twice.
    """
    found: dict[str, str] = {}
    for text in ",".join(given).split(","):
        name, sign, column = (one.strip() for one in text.partition("="))
        if not (sign and name and column):
            raise ConfigError(
                f"--proxy-probabilities {quoted(text)}: write a group and its column, as in black=p_black."
            )
        if name in found:
            raise ConfigError(f"--proxy-probabilities names {quoted(name)} twice.")
        found[name] = column
    return found


def shares_from(shares: Mapping[str, float]) -> Shares:
    """Check shares of all rows; of one group alone, the rest are its complement."""
    names, values = [str(name) for name in shares], [float(value) for value in shares.values()]
    if not values or not all(0 < value < 1 for value in values):
        raise ConfigError("Each share must lie between 0 and 1: pass for example women=0.52.")
    if len(names) == 1:
        names, values = [f"not {names[0]}", *names], [1 - values[0], *values]
    if abs(sum(values) - 1) > 1e-6:
        raise ConfigError(f"The shares add to {sum(values):.6g}, not to 1. Name every group, or one group alone.")
    return Shares(tuple(names), tuple(value / sum(values) for value in values))


def _shares_file(path: Path, strata: str | None) -> Shares:
    if strata is None:
        raise ConfigError(f"--shares {path} has shares by stratum: name the column of strata with --strata.")
    refuse_irregular(path)
    form = form_of(path)
    rows = list(records(path, form, "Is it a csv of shares by stratum?"))
    if len(rows) < 2 or len(rows[0]) < 3:
        raise DataError(f"{path} needs a header (stratum, then each group) and one line for each stratum.")
    groups = tuple(name.strip() for name in rows[0][1:])
    by_stratum: dict[str, tuple[float, ...]] = {}
    for row in rows[1:]:
        try:
            values = tuple(
                float(field.replace(",", ".") if title in form.decimal_commas else field)
                for title, field in zip(rows[0][1:], row[1:], strict=True)
            )
        except ValueError:
            values = ()
        name = row[0]
        if len(values) != len(groups) or not all(0 <= value <= 1 for value in values) or abs(sum(values) - 1) > 1e-6:
            raise DataError(
                f"{path}, stratum {quoted(name)}: there must be one share for each of {len(groups)} groups, and "
                f"they must "
                "add to 1."
            )
        if name in by_stratum:
            raise DataError(f"{path} has stratum {quoted(name)} twice.")
        by_stratum[name] = values
    if len(set(groups)) != len(groups):
        raise DataError(f"{path} has two groups of one name.")
    return Shares(groups, by_stratum=by_stratum)


@dataclass(frozen=True)
class Known:
    """Information on the groups: names of columns, shares, and how answers were randomised."""

    labelled: str | None = None
    proxies: tuple[str, ...] = ()
    inclusion: str | None = None
    strata: str | None = None
    shares: Shares | None = None
    responses: Mapping[str, Response] = field(default_factory=dict)
    probabilities: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of all columns besides label and prediction."""
        probabilities = self.probabilities.values()
        named = [*self.responses, self.labelled, self.inclusion, *self.proxies, *probabilities, self.strata]
        return list(dict.fromkeys(name for name in named if name))

    @property
    def attributes(self) -> dict[str, Known]:
        """What is known of each attribute, by its name."""
        if self.responses:
            return {name: Known(labelled=name) for name in self.responses}
        return {self.labelled or "groups": self}

    def check(self) -> None:
        """Raise :class:`ConfigError` for too many groups, shares without their strata, or a column of two roles."""
        if len(self.probabilities) > MOST_GROUPS:
            raise ConfigError(
                f"{len(self.probabilities)} groups have probabilities; at most {MOST_GROUPS} are compared."
            )
        if "" in self.proxies:
            raise ConfigError("The name of a proxy is empty. Name a column of the file: --proxy COLUMN.")
        if self.shares and self.shares.by_stratum is not None and not self.strata:
            raise ConfigError("Shares by stratum need the column of strata: name it (--strata).")
        roles = [
            name
            for name in (self.labelled, self.inclusion, self.strata, *self.proxies, *self.probabilities.values())
            if name
        ]
        if doubled := [name for name in roles if roles.count(name) > 1]:
            raise ConfigError(f"Column {quoted(doubled[0])} has two roles. Name another column for one of them.")


def refuse_nothing(asked: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` where nothing is known of the groups."""
    if not any(asked.values()):
        raise ConfigError(f"{NOTHING_KNOWN} {WHAT_HELPS}")


def known_of(asked: Mapping[str, Any]) -> Known:
    """Return what options of :func:`levelhead.audit_table` say of groups that are not recorded."""
    shares, answers, chances = asked["shares"], asked["randomized_response"], asked["proxy_probabilities"]
    if isinstance(shares, Mapping):
        shares = shares_from(shares)
    elif shares is not None and not isinstance(shares, Shares):
        shares = read_shares([shares] if isinstance(shares, str) else shares, asked["strata"])
    if chances and not isinstance(chances, Mapping):
        chances = read_probabilities([chances] if isinstance(chances, str) else chances)
    if not all(isinstance(name, str) for name in dict(chances or {}).values()):
        raise ConfigError('proxy_probabilities names a column for each group, as {"f": "p_f", "m": "p_m"}.')
    if answers and not isinstance(answers, Mapping):
        answers = (
            dict.fromkeys(asked["groups"], answers)
            if isinstance(answers, Response)
            else read_responses([answers] if isinstance(answers, str) else answers, asked["groups"])
        )
    if answers and set(answers) != set(asked["groups"]):
        raise ConfigError(
            f"The answers are in {listed(asked['groups'])}, and randomized_response is about {listed(answers)}. Say "
            "how each column was randomised."
        )
    proxies = tuple(dict.fromkeys(asked["proxy"]))
    return Known(
        asked["labelled_group"], proxies, asked["inclusion"], asked["strata"], shares, dict(answers or {}),
        dict(chances or {}),
    )  # fmt: skip
