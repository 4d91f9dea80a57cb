from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stereoset import made, write

from levelhead.lm.stereoset import StereoSet
from levelhead.lm.stereoset.data import read_terms
from levelhead.lm.triplets import (
    Triplet,
    read_triplets,
    split_terms,
    stereoset_triplets,
    write_terms,
)
from levelhead.types import DataError

terms = st.lists(st.text("abcdeFGH ", min_size=1, max_size=6).filter(str.strip), min_size=1, max_size=30)


def triplet(term: str, number: int = 0) -> Triplet:
    return Triplet(f"{term} is round {number}", f"{term} is square {number}", "clouds", term=term, bias_type="fruit")


@given(terms, st.integers(0, 5), st.floats(0.01, 0.99))
def test_a_split_is_whole_disjoint_and_its_own_again(names: list[str], seed: int, share: float) -> None:
    triplets = [triplet(term, number) for number, term in enumerate(names)]
    count = len({term.strip().casefold() for term in names})
    held_out = min(math.floor(share * count + 0.5), count - 1)
    if not held_out:
        with pytest.raises(DataError, match="holds out none"):
            split_terms(triplets, seed=seed, share=share)
        return
    split = split_terms(triplets, seed=seed, share=share)
    trained = {one.term.strip().casefold() for one in split.train}
    assert not trained & {term.strip().casefold() for term in split.held_out_terms}
    assert len({term.strip().casefold() for term in split.held_out_terms}) == held_out
    assert sorted([*split.train, *split.held_out], key=str) == sorted(triplets, key=str)
    again = split_terms(triplets[::-1], seed=seed, share=share)
    assert again.train == split.train[::-1]
    assert again.held_out == split.held_out[::-1]


def of_types(counts: dict[str, int]) -> list[Triplet]:
    return [
        dataclasses.replace(triplet(f"{kind} {number}"), bias_type=kind)
        for kind, count in counts.items()
        for number in range(count)
    ]


@given(st.integers(0, 5), st.floats(0.1, 0.5), st.floats(0.5, 0.99))
def test_a_larger_share_holds_out_all_that_a_smaller_one_does(seed: int, small: float, large: float) -> None:
    rows = of_types({"fruit": 5, "nuts": 9})
    some = split_terms(rows, seed=seed, share=small).held_out_terms
    assert some <= split_terms(rows, seed=seed, share=large).held_out_terms


@pytest.mark.parametrize("seed", range(3))
def test_every_bias_type_with_enough_terms_has_its_share_held_out(seed: int) -> None:
    # StereoSet's numbers of terms: a coin toss a term held out none of religion for some seeds
    split = split_terms(of_types({"race": 36, "profession": 30, "gender": 10, "religion": 3}), seed=seed, share=0.2)
    counts = {"gender": 2, "profession": 6, "race": 7, "religion": 1}
    assert Counter(term.split()[0] for term in split.held_out_terms) == counts
    assert str(split) == (
        "16 of 79 target terms held out: 2 of 10 gender, 6 of 30 profession, 7 of 36 race, 1 of 3 religion"
    )


def test_a_term_of_two_types_counts_once_and_types_are_not_needed() -> None:
    rows = [*of_types({"a": 4, "b": 4}), dataclasses.replace(triplet("b 0"), bias_type="a")]
    split = split_terms(rows, seed=0, share=0.5)
    assert str(split) == "5 of 8 target terms held out: 3 of 5 a, 2 of 3 b"
    nameless = [dataclasses.replace(row, bias_type="") for row in rows]
    assert str(split_terms(nameless, seed=0, share=0.5)) == "4 of 8 target terms held out"


def test_the_hash_is_fixed() -> None:
    rows = [triplet(f"term {number}") for number in range(20)]
    # a change here would put terms that a saved model was trained on into its evaluation
    assert sorted(int(term[5:]) for term in split_terms(rows, seed=0, share=0.25).held_out_terms) == HELD
    assert split_terms(rows, seed=1, share=0.25) != split_terms(rows, seed=0, share=0.25)


HELD = [1, 3, 7, 8, 17]


def test_the_held_out_terms_are_what_stereoset_scores(tmp_path: Path) -> None:
    write(tmp_path, "stereoset_dev.jsonl.gz", made(dict.fromkeys("abcdefghij", "fruit")))
    triplets = stereoset_triplets(tmp_path)
    assert len(triplets) == 40
    sentences = ("The a is round 0.", "The a is square 0.", "The a is yesterday 0.")
    assert triplets[0] == Triplet(*sentences, "The a is BLANK 0.", "a", "fruit", "intrasentence")
    split = split_terms(triplets, seed=0, share=0.5)
    items = StereoSet(terms=split.held_out_terms).read(tmp_path)
    assert [item.content["stereotype"] for item in items] == [one.stereotype for one in split.held_out]
    assert not {item.content["target"] for item in items} & {one.term for one in split.train}
    write_terms(tmp_path / "terms.txt", split.held_out_terms)
    assert StereoSet(terms=read_terms(tmp_path / "terms.txt")).read(tmp_path) == items


def test_an_own_table_needs_three_columns(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("unrelated,stereo,anti\nclouds,round,square\n", encoding="utf-8")
    assert read_triplets(path) == [Triplet("round", "square", "clouds")]
    path.write_text(
        'stereo,anti,unrelated,context,term,bias_type\n"round, red",square,clouds,"I, too.",pear,fruit\na,b,c,,fig,\n',
        encoding="utf-8",
    )
    first, second = read_triplets(path)
    assert first == Triplet("round, red", "square", "clouds", "I, too.", "pear", "fruit", "intersentence")
    assert second == Triplet("a", "b", "c", "", "fig", "", "intrasentence")


@pytest.mark.data
def test_the_terms_of_the_real_set_are_split(real_data: Path) -> None:
    if not (real_data / "stereoset").is_dir():
        pytest.skip(f"no StereoSet: there is no folder stereoset in {real_data}")
    triplets = stereoset_triplets(real_data)
    assert len(triplets) == 4229
    split = split_terms(triplets, seed=0, share=0.3)
    assert len(split.train) + len(split.held_out) == 4229
    assert not {one.term for one in split.train} & split.held_out_terms
    assert str(split).endswith(": 3 of 10 gender, 9 of 30 profession, 11 of 36 race, 1 of 3 religion")
