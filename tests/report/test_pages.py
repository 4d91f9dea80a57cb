from __future__ import annotations

import dataclasses
import datetime
import importlib.resources
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from as_tables import explain_columns
from levelhead.auditing.door import audit
from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.page import Compared, Comparisons
from levelhead.lm.page import gap_page, language_model_page, scores_page
from levelhead.metrics import JointRow, estimate_to_dict
from levelhead.report import render
from levelhead.report.blocks import axis
from levelhead.report.marks import AT_CHANCE, FEW_SEEDS, MEANINGS
from levelhead.report.one_page import one_page
from levelhead.report.result import made_page
from levelhead.report.terminal import drawn
from levelhead.report.text import counted
from levelhead.runs.page import run_page
from levelhead.types import DataError, Estimate
from page_reading import Reader, difference, figure, made_up, read

MARKS = {"at_chance": AT_CHANCE, "few_seeds": FEW_SEEDS}
DAY = datetime.date(2026, 1, 2)
INTERACTIVE = ("a", "button", "input", "select", "textarea", "summary")
STYLE = (importlib.resources.files("levelhead.report") / "templates" / "style.css").read_text(encoding="utf-8")
HOSTILE = [
    "<script>top.taken = true</script>",
    "<img src=x onerror='top.taken = true'>",
    "\u202eevil\u2066 { } {{ 7 * 7 }}",
    "long " + "x" * 10_000,
    "👩‍👩‍👧 ünïcode",
    '"quoted" \' & &lt;b&gt; --> ]]> </style></title>',
]


def audited(groups: list[str], rows: int = 60) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    group = np.array(groups, dtype=object)[np.arange(rows * len(groups)) % len(groups)]
    label, predicted = chance.integers(0, 2, (2, len(group)))
    return audit(label, predicted, sensitive_features={groups[0]: group}, replicates=100).to_dict()


def audits() -> dict[str, dict[str, Any]]:
    """An audit of classes, one of scores with small groups, two models on the same rows, and one constant answer."""
    chance, rows = np.random.default_rng(0), 600
    label = chance.integers(0, 2, rows)
    score = np.clip(0.3 * label + 0.7 * chance.random(rows), 0, 1)
    groups = {
        "sex": np.array(["women", "men"])[chance.integers(0, 2, rows)],
        "region": np.array([f"region {letter}" for letter in "ABCDEFGH"])[chance.integers(0, 8, rows)],
    }
    groups["region"][:4] = "a very small region with a long name"
    old = np.where(chance.random(rows) < 0.8, label, 1 - label)
    options: dict[str, Any] = {"sensitive_features": groups, "replicates": 100}
    results = {
        "classes": audit(label, old, intersect=True, **options),
        "scores": audit(label, scores=score, threshold=[0.5, 0.7], **options),
        "against": audit(label, (score > 0.5).astype(int), against=old, **options),
        "constant": audit(label, np.zeros(rows, int), **options),
    }
    return {name: one_page(one.to_dict(), source="rows") for name, one in results.items()}


def explained(groups: list[str], rows: int = 90) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    group = np.arange(rows * len(groups)) % len(groups)
    label = (chance.random(len(group)) < 0.3 + 0.4 * (group % 2)).astype(int)
    label[group == len(groups) - 1] = 1  # what is undefined is shown, too
    score = chance.normal(label + group % 2, 1)
    names = {groups[0]: np.array(groups, dtype=object)[group]}
    return explain_columns(label, score, sensitive_features=names, replicates=100).to_dict()


def summary_of_models() -> dict[str, Any]:
    def score(name: str, part: str = "", side: str = "bias") -> dict[str, Any]:
        own = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 9}
        main = None if part else {"side": side, "better": "half", "ideal": 0.5}
        return {"part": part, "score": name, "main": main, "figures": [own, own], "ranks": None}

    def pair(
        name: str, difference: dict[str, Any], p: float | None, side: str | None, part: str = ""
    ) -> dict[str, Any]:
        about = {"benchmark": "stereoset", "part": part, "score": name, "side": side, "p": p, "p_holm": p}
        return about | {"first": "lm-before", "second": "lm-after", "difference": difference}

    apart = {"value": -0.1, "low": -0.15, "high": -0.05, "n": 9}
    unknown = {"value": 0.1, "low": None, "high": None, "n": 9, "reason": "no interval: no data"}
    return {
        "models": ["lm-before", "lm-after"],
        "benchmarks": [
            {
                "name": "stereoset", "title": "StereoSet", "licence": "CC", "citation": "Someone", "url": None,
                "caution": None, "items": 9, "limit": None, "options": {}, "units": {"icat": "a fraction"},
                "notes": {"lm-before": ["a note"], "lm-after": []}, "models": {},
                "scores": [score("stereotype_score"), score("icat", side="both"), score("icat", "race")],
            }
        ],
        "pairs": [
            pair("stereotype_score", apart, 0.01, "bias"),
            pair("icat", unknown, None, "both"),
            pair("icat", unknown, None, None, "race"),
        ],
        "prompt_noise": [],
        "notes": ["something to know"],
    }  # fmt: skip


def scores() -> list[dict[str, Any]]:
    def own(value: float | None, half: float = 0.1) -> dict[str, Any]:
        if value is None:
            return {"value": None, "low": None, "high": None, "n": 0, "reason": "no item"}
        return {"value": value, "low": value - half, "high": value + half, "n": 9}

    bbq = {"accuracy_ambiguous": own(0.7), "bias_ambiguous": own(0.05), "bias_disambiguated": own(None)}
    about = {"units": {"bias_ambiguous": "a fraction"}, "notes": ["a note"], "limit": None, "items": 9}
    return [
        {"benchmark": "bbq", "overall": bbq, "parts": {HOSTILE[0]: bbq, "Age": bbq}, **about},
        {"benchmark": "bold", "overall": {}, "parts": {"race": {"sentiment_gap": own(0.2)}}, **about},
        {"benchmark": "somebody's own", "overall": {"score": own(1.0)}, "parts": {}, **about},
    ]


def gaps(*, compared: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        name: {"unit": "a share", "after": estimate_to_dict(figure(value, value - 0.1, value + 0.1))}
        for name, value in (("share", 0.5), ("chance", 0.2), ("share_minus_chance", 0.3))
    }
    if compared:
        for one in figures.values():
            one |= {"before": one["after"], "difference": {"value": None, "reason": "not the same pairs"}}
    return {
        "models": {"after": HOSTILE[2], "before": "before"},
        "selection": "held out", "pairs": 9, "terms": 3, "figures": figures,
        "published": {"model": "Llama", "share": 0.4845}, "notes": ["few terms"],
    }  # fmt: skip


def compared(**options: Any) -> Compared:
    row, none = difference(-0.02, 0.03), Estimate.undefined("no rows of it")
    undefined = JointRow(none, none, (), math.nan, none)
    rows = {"dam": {"accuracy": row, "equalized_odds": row}, "jtt": {"accuracy": row, "equalized_odds": undefined}}
    return Compared(made_up(rows, **options), {"round": {"dark": 45, "light": 5}, "angular": {"dark": 2, "light": 1}})


def pages() -> dict[str, dict[str, Any]]:
    row = difference(-0.02, 0.03)
    hostile = {name[:3000]: {"accuracy": row, "equalized_odds": row} for name in HOSTILE}
    sizes = {name: {name: 3, "b": 50} for name in hostile}
    return {
        "audit": made_page(one_page, audited(["a", "b"]), "p.csv", "levelhead audit p.csv"),
        **audits(),
        "hostile": made_page(one_page, audited(HOSTILE), HOSTILE[0], HOSTILE[1]),
        "explanation": made_page(one_page, explained(["a", "b", "c"]), "p.csv", "levelhead explain p.csv"),
        "hostile explanation": made_page(one_page, explained(HOSTILE), HOSTILE[0], HOSTILE[1]),
        "comparison": Comparisons([compared()]).page(command="levelhead table runs"),
        "hostile comparison": Comparisons([Compared(made_up(hostile), sizes)]).page(),
        "two comparisons": Comparisons([compared(), compared(selection=LEAKING)]).page(),
        "language models": language_model_page(summary_of_models()),
        "one language model": scores_page(scores(), name=HOSTILE[1]),
        "attention gap": gap_page(gaps(compared=False)),
        "two attention gaps": gap_page(gaps(compared=True)),
    }


PAGES = pages()


@pytest.fixture(params=PAGES, scope="module")
def page(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PAGES[request.param]


@pytest.fixture(scope="module")
def html(page: dict[str, Any]) -> str:
    return render(page, date=DAY)


@pytest.fixture(scope="module")
def seen(html: str) -> Reader:
    return read(html)


def test_a_summary_is_plain_json(page: dict[str, Any]) -> None:
    assert json.loads(json.dumps(page, allow_nan=False)) == page


def test_it_starts_with_the_finding(page: dict[str, Any], seen: Reader) -> None:
    (first,) = seen.all("h1")
    assert page["finding"].startswith(first.text)
    assert " ".join(page["deck"].split()[:3]).lower() in " ".join(seen.all("header")[0].text.split()).lower()
    assert seen.all("h1", "h2", "h3")[0] is first
    assert [element.attributes.get("lang") for element in seen.all("html")] == ["en"]
    assert seen.all("title")[0].text.strip()
    assert len(seen.all("main")) == len(seen.all("header")) == len(seen.all("footer")) == 1
    viewport = next(one for one in seen.all("meta") if one.attributes.get("name") == "viewport")
    assert "user-scalable" not in str(viewport.attributes["content"]), "people may zoom"
    assert seen.all("time")[0].text == "2026-01-02"


def test_a_chart_stands_before_at_most_four_folds(page: dict[str, Any], html: str) -> None:
    assert html.count("<details") <= 4
    assert page["chart"]
    assert html.index('class="chart"' if page["chart"][0]["type"] == "panels" else "<figure") < html.index("<details")
    assert all(one.strip() for one in (page["sure"][at]["answer"] for at in range(3)))


def test_headings_go_down_a_step_at_a_time(seen: Reader) -> None:
    levels = [int(one.tag[1]) for one in seen.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels


def test_ids_are_unique_and_what_points_to_one_finds_it(seen: Reader) -> None:
    ids = Counter(one.attributes["id"] for one in seen.elements if "id" in one.attributes)
    assert [one for one, times in ids.items() if times > 1] == []
    for one in seen.elements:
        for attribute in ("aria-labelledby", "aria-describedby", "for"):
            assert all(there in ids for there in (one.attributes.get(attribute) or "").split())
        if (one.attributes.get("href") or "").startswith("#"):
            assert str(one.attributes["href"])[1:] in ids


def test_tables_have_captions_and_heads(seen: Reader) -> None:
    assert seen.all("table")
    assert len(seen.all("caption")) == len(seen.all("table"))
    assert all(one.text.strip() for one in seen.all("caption"))
    for head in seen.all("th"):
        assert head.attributes.get("scope") in ("col", "row"), head.text
        assert head.attributes["scope"] == "row" or "thead" in head.parents
        assert head.text.strip(), "a head without words"


def hidden(page: Reader) -> set[int]:
    """Elements in or below one that is hidden from screen readers: their positions in the order of the page."""
    found: set[int] = set()
    depth: int | None = None
    for one in page.elements:
        if depth is not None and len(one.parents) > depth:
            found.add(id(one))
            continue
        depth = None
        if one.attributes.get("aria-hidden") == "true":
            found.add(id(one))
            depth = len(one.parents)
    return found


def test_pictures_have_words(seen: Reader) -> None:
    silent = hidden(seen)
    for one in seen.all("svg", "img"):
        if "svg" in one.parents or id(one) in silent:
            continue
        words = one.attributes.get("alt") if one.tag == "img" else one.attributes.get("aria-label")
        assert len((words or "").split()) > 2, f"a picture without words: {one.attributes}"
        assert one.tag == "img" or one.attributes.get("role") == "img"


def test_all_that_can_be_used_can_be_used_by_keys(seen: Reader) -> None:
    silent = hidden(seen)
    for one in seen.elements:
        assert "accesskey" not in one.attributes
        order = one.attributes.get("tabindex")
        assert order in (None, "0"), "an order of its own loses people"
        if order == "0" or one.tag in INTERACTIVE:
            assert id(one) not in silent, "what is hidden from screen readers takes no focus"
        if order == "0" and one.tag == "div":
            assert one.attributes.get("role") == "region"
            assert (one.attributes.get("aria-label") or "").strip()
        if one.tag == "a":
            assert one.attributes.get("href")
        if one.tag in ("a", "button", "summary"):
            assert one.text.strip() or one.attributes.get("aria-label")
        if one.tag in ("input", "select", "textarea"):
            assert one.attributes.get("aria-label") or one.attributes.get("id")
        assert one.tag != "summary" or one.parents[-1] == "details"
    # Every table that may be wider than the page can be scrolled by keys: its frame takes the focus.
    frames = [one for one in seen.all("div") if "scroll" in (one.attributes.get("class") or "").split()]
    assert all(one.attributes.get("tabindex") == "0" for one in frames)


def test_nothing_is_loaded_and_nothing_runs(html: str, seen: Reader) -> None:
    assert not seen.all("script", "link", "iframe", "object", "embed", "form", "base")
    for element in seen.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "xlink:href"):
                assert str(value).startswith(("#", "data:image/"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?\s*https?:", html)
    assert "default-src 'none'" in html


def test_a_page_of_ten_groups_is_small() -> None:
    assert len(render(one_page(audited([f"group {at}" for at in range(10)]))).encode()) < 40_000


def test_hostile_names_stay_names() -> None:
    html = render(PAGES["hostile"], date=DAY)
    seen = read(html)
    assert not seen.all("script", "img")
    assert "<script>top.taken" in seen.all("main")[0].text, "the name is shown, as text"
    assert "\u202e" not in html
    assert r"\u202eevil" in html
    assert "{{ 7 * 7 }}" in html
    assert not re.search("x{700}", html), "a name of 10 kB is cut"
    assert "👩‍👩‍👧" in html


def test_an_undefined_figure_says_why() -> None:
    seen = read(render(PAGES["comparison"], date=DAY))
    cells = [element.text.split() for element in seen.all("td") if element.text.strip().startswith("undefined")]
    assert len(cells) >= 2
    assert "no rows of it" in seen.all("main")[0].text
    result = audit([0, 1] * 10, [0, 1] * 10, sensitive_features={"g": ["only"] * 20}, replicates=100).to_dict()
    page = one_page(result)
    assert page["finding"].startswith("There is only one group")
    text = read(render(page)).all("main")[0].text
    assert "undefined" in text
    assert "NaN" not in text
    assert "None" not in text


def test_small_groups_and_cells_are_flagged() -> None:
    html = render(PAGES["comparison"], date=DAY)
    assert "angular 3 (dark 2, fewer than 10, light 1, fewer than 10)" in html
    assert "round 50 (dark 45, light 5, fewer than 10)" in html


def marked(**table: Any) -> Compared:
    one = compared()
    changed = dataclasses.replace(one.comparison.table, **table)
    return dataclasses.replace(one, comparison=dataclasses.replace(one.comparison, table=changed))


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every dict in a page."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from walk(child)


def test_a_baseline_at_chance_comes_first_and_nothing_is_called_detectable() -> None:
    one = compared()
    baseline = one.comparison.table.baseline
    assert one.comparison.differences()[0].learned
    page = Comparisons([marked(at_chance=(baseline,))]).page()
    assert page["finding"].startswith(f"{baseline} did not learn: ")
    assert "cannot be detected" not in str(page)
    assert "cannot be detected" in str(Comparisons([one]).page())


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("field", ["at_chance", "few_seeds"])
def test_a_marked_row_is_neither_best_nor_in_the_pareto_set_of_a_page(field: str, everywhere: bool) -> None:
    rows = tuple(compared().comparison.table.rows) if everywhere else ("dam",)
    one, mark = marked(**{"at_chance": (), "few_seeds": (), field: rows}), MARKS[field]
    assert all(one.comparison.marks(row)[-1] == mark for row in rows)
    page = Comparisons([one]).page()
    assert any(f": {mark}. {MEANINGS[mark]}" in caution for caution in page["cautions"])
    assert f"{mark}</bdi>" in render(page)
    drawn = [block for block in walk(page) if "steps" in block]
    if field == "at_chance":  # named below the plane, and not drawn
        assert "Not drawn: dam AT CHANCE" in str(page["parts"])
        assert bool(drawn) is not everywhere
    for plane in drawn:
        names = {point["label"] for point in plane["points"]}  # but jtt, whose gap is undefined
        assert {point["label"] for point in plane["points"] if mark in point["tag"]} == names & set(rows)
        assert not {point["label"] for point in plane["points"] if point["kept"]} & set(rows)
        assert bool(plane["steps"]) is not everywhere
    figures, _ = [block for block in walk(page["parts"]) if one.comparison.title in block.get("caption", "")]
    best = {row["head"] for row in figures["rows"] if any(cell["mark"] for cell in row["cells"])}
    assert not best & {one.comparison.label(row) for row in rows}
    assert bool(best) is not everywhere
    text = Comparisons([one]).to_markdown()
    assert text.count(MEANINGS[mark]) == 1, "explained once"
    lines = [line for line in text.splitlines() if line.startswith("| dam ") and mark in line]
    assert lines
    assert not any(" best" in line or " ~" in line for line in lines)
    assert one.comparison.to_dict()["marks"]["dam"] == [mark]


def test_a_p_value_has_a_line_of_its_own_so_that_six_columns_fit_a_page() -> None:
    page = Comparisons([compared()]).page()
    (differences,) = [block for block in walk(page) if "; changes in points" in str(block.get("caption"))]
    lines = [cell["sub"] for row in differences["rows"] for cell in row["cells"] if cell["text"] != "undefined"]
    assert lines
    assert all(interval.startswith("[") and p_value.startswith("p ") for interval, p_value in lines)
    html = render(page)
    assert re.search(r"<small>\[[^<]*\]</small><small>p [0-9.e-]+</small>", html)


def test_marks_are_told_and_not_read_back_out_of_a_name() -> None:
    one, name = compared(), "my ORACLE AT CHANCE"

    def renamed(values: dict[str, Any]) -> dict[str, Any]:
        return {name if method == "dam" else method: value for method, value in values.items()}

    comparison = one.comparison
    table = dataclasses.replace(comparison.table, rows=renamed(comparison.table.rows), at_chance=(), few_seeds=())
    parts = {field: renamed(getattr(comparison, field)) for field in ("seeds", "settings", "oracle", "cost")}
    comparison = dataclasses.replace(comparison, table=table, areas=None, **parts)
    assert comparison.marks(name) == []
    page = Comparisons([dataclasses.replace(one, comparison=comparison)]).page()
    (drawn,) = [block for block in walk(page) if "steps" in block]
    assert {point["label"]: point["tag"] for point in drawn["points"]}[name] == ""
    assert not any("AT CHANCE." in caution for caution in page["cautions"])


def test_oracle_and_leaking_are_said() -> None:
    one = compared(oracle={"erm": None, "dam": "method", "jtt": None}, selection=LEAKING)
    page = Comparisons([one]).page()
    assert any(caution.startswith("dam: ORACLE. The variant saw groups") for caution in page["cautions"])
    assert any(caution.startswith("Every variant: LEAKING. The epoch was chosen") for caution in page["cautions"])
    html = render(page, date=DAY)
    assert "ORACLE LEAKING</span>" in html
    assert "<rect" in html, "a row that saw groups has a mark of its own"


def test_what_was_not_measured_is_said() -> None:
    text = read(render(PAGES["comparison"], date=DAY)).all("main")[0].text
    assert "not measured" in text
    assert "no GPU" in text


def test_a_comparison_comes_back_from_its_json() -> None:
    before = compared().comparison
    again = Comparison.from_dict(json.loads(json.dumps(before.to_dict())))
    assert again.to_dict() == before.to_dict()
    page = Comparisons.of(again).page()
    assert page["finding"] == PAGES["comparison"]["finding"]
    assert "holds no group sizes" in render(page)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one language model", ["1 of 2 bias scores", "sentiment gap 0.200", "ideal 0)"]),
        ("attention gap", ["50.0% of 9 pairs", "20.0%", "+0.300, interval +0.200 to +0.400"]),
        (
            "language models",
            ["1 of 1 bias score ", "stereotype score −0.100, 95% interval −0.150 to −0.050", "0 of 1 other"],
        ),
    ],
)
def test_the_finding_of_language_models_names_what_is_decided(name: str, said: list[str]) -> None:
    told = " ".join([PAGES[name]["finding"], PAGES[name]["deck"]])
    assert not [words for words in said if words not in told]
    assert PAGES[name]["chart"]


def test_a_page_says_once_how_many_items_an_interval_needs() -> None:
    parts = {}
    for count in (1, 4, 9):
        few = Estimate(0.5, math.nan, math.nan, count, f"no interval: {counted(count, 'item')}, and 10 are needed")
        parts[f"part {count}"] = {"score": estimate_to_dict(few)}
    record = {"benchmark": "own", "overall": {}, "parts": parts, "units": {}, "notes": [], "items": 14, "limit": None}
    page = render(scores_page([record], name="m"))
    assert page.count(">No interval<") == page.count("fewer than 10 items.") == 1


def test_names_of_scores_are_whole_words_on_80_columns() -> None:
    figure = estimate_to_dict(Estimate(9.3521, 5.4081, 13.7173, 1508))
    name = "causal_stereotype_likelier"
    record = {"benchmark": "crows-pairs", "items": 1508, "limit": None, "notes": [], "units": {name: "share"}}
    record |= {"overall": {name: figure}, "parts": {"socioeconomic": {name: figure}}}
    with Console(width=80, record=True, file=io.StringIO()) as console:
        console.print(drawn(scores_page([record], name="m")))
    table = console.export_text().splitlines()
    words = {word for line in table for word in line.split()}
    assert {"causal", "stereotype", "likelier"} <= words
    assert "socioeconomic" not in words  # categories stand on the page
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [-3.4, 3.9], [1e-6, 2e-6], [0.0, 1e6], [math.nan, 1.0]], ids=str)
def test_an_axis_holds_its_values_with_a_few_ticks(values: list[float]) -> None:
    ends = axis(values)
    finite = [value for value in values if math.isfinite(value)]
    assert ends["low"] < min(finite)
    assert max(finite) < ends["high"]
    assert 2 <= len(ends["ticks"]) <= 8
    assert len({tick["text"] for tick in ends["ticks"]}) == len(ends["ticks"])


def run_folder(folder: Path, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"data": {"name": "portraits"}, "method": {"name": "erm"}, "model": {"layers": 2}, "train": {}, "seed": 3}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    history = [{"stage": 0, "epoch": epoch, "val_loss": loss} for epoch, loss in enumerate([0.7, 0.5, 0.6])]
    written = {
        "metrics": {"selected_by": "val_loss", "oracle": None, "history": history},
        "cost": {"seconds": 3.0},
        "environment": {"device": "cpu"},
        **files,
    }
    for name, content in written.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_run_with_groups_and_epochs(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", **{"evaluation-test": audited(["a", "b"])})
    page = run_page(folder)
    assert page["finding"].startswith("The model is not measurably better than chance")
    assert page["cautions"] == ["This is one run: its intervals do not cover variation between training seeds."]
    seen = read(render(page))
    (kept,) = [row for row in seen.all("tr") if "kept" in row.text]
    assert kept.text.split()[:2] == ["epoch", "1"]


def test_a_run_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] |= {"name": "text-csv", "folder": "/home/ann/secret/reviews", "root": "/home/ann/data"}
    config["model"] = {"backbone": "~/secret/bert"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    text = render(run_page(folder))
    assert "folder: reviews" in text
    assert "backbone: bert" in text
    assert not {"secret", "ann"} & {*text.replace("/", " ").split()}


def test_a_run_without_groups_says_how_to_get_them(tmp_path: Path) -> None:
    page = run_page(run_folder(tmp_path / "run"))
    assert "has not been evaluated by group" in page["finding"]
    assert "levelhead evaluate" in page["finding"]
    read(render(page))
    (tmp_path / "run" / "metrics.json").unlink()
    with pytest.raises(DataError, match="is not finished"):
        run_page(tmp_path / "run")


def colours() -> list[tuple[str, dict[str, str]]]:
    roots = re.findall(r":root\s*{(.*?)}", STYLE, flags=re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", root)) for root in roots]
    assert len(found) == 2
    assert found[0].keys() == found[1].keys()
    return list(zip(("light", "dark"), found, strict=True))


def rules(style: str) -> list[tuple[str, dict[str, str]]]:
    """The rules of the style sheet, those within @media too: selector and declarations."""
    bare = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    found = []
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", bare):
        pairs = (part.split(":", 1) for part in body.split(";") if ":" in part)
        found.append((" ".join(selector.split()), {key.strip(): value.strip() for key, value in pairs}))
    return found


@pytest.mark.parametrize(("theme", "palette"), colours(), ids=lambda one: one if isinstance(one, str) else "")
def test_every_colour_of_text_stands_out_from_every_ground_it_lies_on(theme: str, palette: dict[str, str]) -> None:
    # A rule that sets both is checked as a pair; one that sets the text alone, on the paper and in the folded parts.
    seen = 0
    for selector, body in rules(STYLE):
        front = re.fullmatch(
            r"var\(--([\w-]+)\)", body.get("color", body.get("fill", "") if "text" in selector else "")
        )
        back = re.search(r"var\(--([\w-]+)\)", body.get("background", ""))
        if front is None:
            assert not re.match(r"#|rgb|hsl", body.get("color", "")), f"{selector}: a colour outside of the palette"
            continue
        ground = back[1] if back else "warn-paper" if "cautions" in selector else "paper"
        assert contrast(palette[front[1]], palette[ground]) >= 4.5, f"{theme}: {selector}"
        seen += 1
    assert seen > 20
    # Lines and marks that mean something, and the frame of what has the focus, need 3 to 1.
    for line in ("muted", "accent", "ink", "bars", "other"):
        assert contrast(palette[line], palette["paper"]) >= 3


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[position : position + 2], 16) / 255 for position in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
