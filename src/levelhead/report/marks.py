"""The marks that a row of a comparison can have, and what they mean: one text for tables, pictures and pages."""

from __future__ import annotations

ORACLE, LEAKING, AT_CHANCE, FEW_SEEDS = "ORACLE", "LEAKING", "AT CHANCE", "SEEDS TOO FEW TO TELL"
FEW_GROUPS, DECLARES, IDENTITIES = "FEW GROUPS", "DECLARES", "IDENTITIES"
PLACEBO = " SHUFFLED"
"""Suffix of the mark of a placebo variant, whose knowledge is shuffled."""

MEANINGS = {
    ORACLE: "The variant saw groups, in training or in choosing the epoch. It is a reference, not a method without "
    "demographics.",
    FEW_GROUPS: "The variant saw the groups of a few validation rows, and no others; it predicts without groups.",
    DECLARES: "The variant was given a part of the input that should not decide, declared by the user. It saw no "
    "groups.",
    IDENTITIES: "The variant saw which training rows belong to one person. It saw no groups. A person's id is "
    "personal data.",
    LEAKING: "The epoch was chosen by the gap on the reported rows. Such a figure is biased downwards and is not a "
    "result.",
    AT_CHANCE: "On these rows, balanced accuracy is not measurably above chance. Constant and random answers "
    "have small gaps, so the variant is never marked best.",
    FEW_SEEDS: "Over these rows, balanced accuracy is above chance; over rows and seeds its interval contains "
    "chance. More seeds would decide; until then the variant is never marked best.",
}
"""The meaning of each mark, in full sentences. No marked row is in a Pareto set."""


def meaning(mark: str) -> str:
    """Return a mark with its meaning, as captions show it; words may follow the mark, as in "FEW GROUPS 200"."""
    return f"{mark}: {next(text for known, text in MEANINGS.items() if mark.startswith(known))}"
