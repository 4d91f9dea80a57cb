"""Information on the groups instead of the attribute: labelled rows, proxies, shares, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from levelhead.auditing.exclusions import Refused
from levelhead.auditing.unknown.privacy import Response
from levelhead.types import ConfigError, quoted

FEWEST_LABELLED = 100
MOST_GROUPS = 8
WHAT_HELPS = (
    "What would help: the group of 100 rows or more (--labelled-group), three proxies (--proxy), probabilities of the "
    "groups (--proxy-probabilities), or their shares (--shares)."
)
NOTHING_KNOWN = "Nothing is known of the groups, so any gap up to 100 points is possible."


@dataclass(frozen=True)
class Known:
    """Names of columns, shares of groups, and how the answers in ``labelled`` were randomised."""

    labelled: str | None = None
    proxies: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    response: Response | None = None
    probabilities: Mapping[str, str] = field(default_factory=dict)

    @property
    def roles(self) -> list[tuple[str | None, str]]:
        """Each column beside label and prediction, and what it is."""
        named = [(name, "proxy") for name in (*self.proxies, *self.probabilities.values())]
        return [*named, (self.labelled, "labelled group" if self.response is None else "group")]

    @property
    def columns(self) -> list[str]:
        """Names of all columns besides label and prediction."""
        return [name for name, _ in self.roles if name is not None]

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Known:
        """Return what options of :func:`levelhead.audit_table` say of groups that are not recorded.

        Raises:
            ConfigError: an option that cannot be read, too many groups or proxies, or proxies without true classes.
        """
        proxies, labelled = tuple(dict.fromkeys(asked["proxy"])), asked["labelled_group"]
        if len(proxies) == 3 and labelled is None and asked["label"] is None:
            raise ConfigError("Three proxies need the true class of every row: name it with --label.")
        probabilities = named_in(asked["proxy_probabilities"] or {}, "--proxy-probabilities", "black=p_black")
        if not all(isinstance(name, str) for name in probabilities.values()):
            raise ConfigError('proxy_probabilities names a column for each group, as {"f": "p_f", "m": "p_m"}.')
        if len(probabilities) > MOST_GROUPS:
            raise ConfigError(f"{len(probabilities)} groups have probabilities; at most {MOST_GROUPS} are compared.")
        shares = shares_of(asked["shares"]) if asked["shares"] else {}
        if (response := asked["randomized_response"]) is not None:
            if len(asked["groups"]) != 1:
                raise Refused(
                    "Randomised answers are audited one column at a time: name one with {groups}.", ["groups"]
                )
            (labelled,) = asked["groups"]
            response = Response.parse(response) if isinstance(response, str) else response
        return cls(labelled, proxies, shares, response, probabilities)


def shares_of(given: Mapping[str, float] | Sequence[str] | str) -> dict[str, float]:
    """Return the share of each group; of one group alone, the rest is its complement.

    Raises:
        ConfigError: shares that are no fractions, do not add to 1, or name a group twice.
    """
    example = "women=0.52"
    try:
        shares = {str(name): float(value) for name, value in named_in(given, "--shares", example).items()}
    except ValueError:
        shares = {}
    if not shares or not all(0 < value < 1 for value in shares.values()):
        raise ConfigError(f"Each share must lie between 0 and 1: pass for example {example}.")
    if len(shares) == 1:
        shares = {f"not {name}": 1 - value for name, value in shares.items()} | shares
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"The shares add to {total:.6g}, not to 1. Name every group, or one group alone.")
    return {name: value / total for name, value in shares.items()}


def named_in(given: Mapping[str, Any] | Sequence[str] | str, option: str, example: str) -> dict[str, Any]:
    """Read texts such as ``white=p_w``, one or several, also with commas between them; a mapping stays as it is.

    Raises:
        ConfigError: a text without a name or a value, or a name that is given twice.
    """
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, str] = {}
    for text in ",".join([given] if isinstance(given, str) else given).split(","):
        name, _, value = (one.strip() for one in text.rpartition("="))
        if not (name and value):
            raise ConfigError(f"{option} {quoted(text)}: write each group and its value, as in {example}.")
        if name in found:
            raise ConfigError(f"{option} names {quoted(name)} twice.")
        found[name] = value
    return found


def refuse_nothing(asked: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` where nothing is known of the groups."""
    if not any(asked.values()):
        raise ConfigError(f"{NOTHING_KNOWN} {WHAT_HELPS}")
