"""The marks that a row of a comparison can have, and what they mean: one text for tables, pictures and pages."""

from __future__ import annotations

ORACLE, LEAKING, AT_CHANCE, FEW_SEEDS = "ORACLE", "LEAKING", "AT CHANCE", "SEEDS TOO FEW TO TELL"
FEW_GROUPS, DECLARES, IDENTITIES = "FEW GROUPS", "DECLARES", "IDENTITIES"
PLACEBO = " SHUFFLED"
"""Follows the mark of a variant whose knowledge is shuffled: what its steps do without any."""

MEANINGS = {
    ORACLE: "The variant saw groups, in training or in choosing the epoch. It shows what knowing them would give, and "
    "is no method without demographics.",
    FEW_GROUPS: "The variant was told the groups of so many validation rows, and of no others; it needs no group to "
    "predict.",
    DECLARES: "The variant was told a part of the input that should not decide: what a user knows, not the data. It "
    "saw no groups.",
    IDENTITIES: "The variant was told which training rows are of one person. It saw no groups. An id of a person is "
    "personal data.",
    LEAKING: "The epoch was chosen by the gap on the very rows that are reported. Such a figure is too small by "
    "construction, and is no result.",
    AT_CHANCE: "By the noise of the test rows alone, the variant's balanced accuracy is not above that of a constant "
    "or random answer. Such answers have small gaps, which says nothing good about them: the variant is never the "
    "best.",
    FEW_SEEDS: "By the noise of the test rows alone, the variant's balanced accuracy is above that of a constant or "
    "random answer, but its interval over test rows and seeds reaches that. More seeds would tell; till then the "
    "variant is never the best.",
}
"""What each mark means, in full sentences. No marked row is in a Pareto set."""


def meaning(mark: str) -> str:
    """Return a mark with what it means, as captions show it; words may follow the mark, as in "FEW GROUPS 200"."""
    return f"{mark}: {next(text for known, text in MEANINGS.items() if mark.startswith(known))}"
