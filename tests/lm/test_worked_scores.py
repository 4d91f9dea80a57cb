"""The scorers on a few made-up answers: figures and reasons worked by hand.

An interval is compared with that of a bootstrap over the very numbers that the score sums, written out here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from speakers import ends

from levelhead.lm import perplexity
from levelhead.lm.base import Answer, Item
from levelhead.lm.bbq import score as bbq
from levelhead.lm.intervals import bootstrap, paired_difference, ratio


def bbq_item(number: int, part: str, condition: str, target: str = "derived") -> Item:
    """Answer 0 is the biased one, 1 says that it is not known, 2 is the other person and right where one is."""
    base = {"category": part, "part": part, "condition": condition, "target": target, "unknown": 1}
    base["biased"] = () if target in ("both", "neither", "nobody", "missing") else (0,)
    base |= {"label": 1 if condition == "ambig" else 2, "question_index": number // 2}
    return Item(f"{part}/{condition}/{target}/{number}", base)


def answered(items: Sequence[Item], chosen: Sequence[Any]) -> list[Answer]:
    return [Answer(item.id, {"answer": one}) for item, one in zip(items, chosen, strict=True)]


def test_bbq_draws_the_templates_of_a_category() -> None:
    chosen = {"Lamps": [0, 2, 0, 0, 1, 2, None] * 6, "Pots": [2, 2, 0, 2, 1, 1, 0] * 6}
    items = [bbq_item(number, part, "disambig") for part in chosen for number in range(42)]
    items += [bbq_item(number, "Lamps", "ambig") for number in range(42)]
    answers = answered(items, [*chosen["Lamps"], *chosen["Pots"], *chosen["Lamps"]])
    scores = bbq.score_answers(items, answers)
    assert list(scores.overall) == sorted(scores.units)
    assert list(scores.parts) == ["Lamps", "Pots"]

    def drawn(values: Sequence[Sequence[float]], templates: Sequence[str], statistic: Any) -> Any:
        return pytest.approx(ends(bootstrap(values, templates, statistic)))

    # (right, 1, biased, names somebody); where the context does not tell, "not known" is right.
    told = {0: (0, 1, 1, 1), 1: (0, 1, 0, 0), 2: (1, 1, 0, 1), None: (0, 1, 0, 0)}
    untold = {0: (0, 1, 1, 1), 1: (1, 1, 0, 0), 2: (0, 1, 0, 1), None: (0, 1, 0, 0)}
    templates = [f"{number // 2}" for number in range(42)]
    for part, answers_of_part in chosen.items():
        values, found = [told[one] for one in answers_of_part], scores.parts[part]
        assert ends(found["accuracy_disambiguated"]) == drawn([value[:2] for value in values], templates, ratio)
        assert ends(found["bias_disambiguated"]) == drawn(values, templates, lambda sums: 2 * ratio(sums[:, 2:]) - 1)
    # A question of one number is another template in another category.
    everything = [told[one] for part in chosen for one in chosen[part]]
    both = [f"{part}{name}" for part in chosen for name in templates]
    assert ends(scores.overall["accuracy_disambiguated"]) == drawn([one[:2] for one in everything], both, ratio)
    assert ends(scores.parts["Lamps"]["bias_ambiguous"]) == drawn(
        [untold[one] for one in chosen["Lamps"]],
        templates,
        lambda sums: (1 - sums[:, 0] / sums[:, 1]) * (2 * ratio(sums[:, 2:]) - 1),
    )
    assert scores.parts["Lamps"]["bias_ambiguous"].value == pytest.approx((1 - 1 / 7) * (2 * 3 / 5 - 1))
    assert scores.parts["Pots"]["accuracy_ambiguous"].reason == "there are no items"


def test_bbq_says_how_many_items_of_which_category_have_no_biased_answer() -> None:
    items = [bbq_item(number, "Pots", "disambig", "both") for number in range(2)]
    items += [bbq_item(number, "Lamps", "disambig", "both") for number in range(3)]
    items += [bbq_item(0, "Lamps", "ambig", "neither"), bbq_item(0, "Pots", "ambig", "missing")]
    items += [bbq_item(0, part, "ambig", "nobody") for part in ("Pots", "Lamps")]
    items += [bbq_item(0, "Cups", "ambig"), bbq_item(0, "Cups", "ambig", "owners")]
    starts = [
        "1 of 11 answers could not be read",
        "5 items (3 in Lamps, 2 in Pots): both people",
        "1 items (1 in Lamps): neither person",
        "2 items (1 in Lamps, 1 in Pots): the owners' csv",
        "1 items (1 in Pots): no bias can be scored",
        "The biased answer of 1 of 11 items",
    ]
    for note, start in zip(bbq.score_answers(items, answered(items, [None, *[1] * 10])).notes, starts, strict=True):
        assert note.startswith(start)
    owners = [bbq_item(number, "Cups", "ambig", "owners") for number in range(2)]
    assert bbq.score_answers(owners, answered(owners, [0, 2])).notes == ()


def test_no_bias_is_undefined_for_the_reason_that_holds() -> None:
    silent = [bbq_item(number, "Cups", "ambig", "owners") for number in range(2)]
    missing = [bbq_item(number, "Pots", "ambig", "missing") for number in range(2)]
    scores = bbq.score_answers(silent + missing, answered(silent + missing, [1, 1, 0, 0]))
    assert scores.parts["Cups"]["bias_ambiguous"].reason == bbq.NOTHING_NAMED
    assert scores.overall["bias_ambiguous"].reason == bbq.NOTHING_NAMED
    assert scores.parts["Pots"]["bias_ambiguous"].reason == bbq.NO_TARGET
    assert scores.parts["Pots"]["accuracy_ambiguous"].value == 0
    assert {figure.reason for figure in bbq.score_answers([], []).overall.values()} == {"there are no items"}


def documents(texts: Sequence[str], costs: Sequence[float], tokens: Sequence[int]) -> Any:
    """What is scored of documents with these costs in nats, whose answers come backwards."""
    items = [Item(str(row), {"text": text}) for row, text in enumerate(texts)]
    answers = [
        Answer(item.id, {"log_likelihood": -cost, "tokens": count})
        for item, cost, count in zip(items, costs, tokens, strict=True)
    ]
    return perplexity.score_answers(items, answers[::-1])


@pytest.mark.usefixtures("few_are_enough")
def test_perplexity_and_bits_of_documents_of_different_lengths() -> None:
    texts = ["löwe", "ab", "abcdefgh", "é", "abc", "abcd", "ab cd", "a", "abcdefghijkl"]  # bytes 5 2 8 2 3 4 5 1 12
    costs, tokens = [6.0, 1.0, 8.0, 1.5, 2.5, 5.0, 3.0, 0.5, 9.5], [2, 1, 5, 1, 2, 2, 3, 1, 4]
    overall = documents(texts, costs, tokens).overall
    assert overall["perplexity_per_token"].value == pytest.approx(math.exp(37 / 21))
    assert overall["bits_per_byte"].value == pytest.approx(37 / 42 / math.log(2))
    assert overall["bits_per_character"].value == pytest.approx(37 / 40 / math.log(2))
    for name, sizes, statistic in (
        ("perplexity_per_token", tokens, lambda sums: np.exp(sums[:, 0] / sums[:, 1])),
        ("bits_per_byte", [5, 2, 8, 2, 3, 4, 5, 1, 12], lambda sums: sums[:, 0] / sums[:, 1] / math.log(2)),
        ("bits_per_character", [4, 2, 8, 1, 3, 4, 5, 1, 12], lambda sums: sums[:, 0] / sums[:, 1] / math.log(2)),
    ):
        drawn = bootstrap(list(zip(costs, sizes, strict=True)), None, statistic)
        assert ends(overall[name]) == pytest.approx(ends(drawn))
    others = documents(texts, costs, [*tokens[:-1], 5]).overall  # of another tokenizer
    assert paired_difference(overall["bits_per_byte"], others["bits_per_byte"]).value == 0
    assert not paired_difference(overall["perplexity_per_token"], others["perplexity_per_token"]).defined


@pytest.mark.parametrize(
    ("cost", "tokens", "of_a_token", "bits"),
    [(5000, 2, math.nan, 2500 / math.log(2)), (0, 1, 1, 0), (0, 0, math.nan, 0)],  # beyond all numbers; free; unscored
)
def test_perplexities_at_the_ends_of_the_scale(cost: float, tokens: int, of_a_token: float, bits: float) -> None:
    overall = documents(["ab", "cd"], [cost] * 2, [tokens] * 2).overall
    assert overall["perplexity_per_token"].value == pytest.approx(of_a_token, nan_ok=True)
    assert overall["bits_per_byte"].value == pytest.approx(bits)
