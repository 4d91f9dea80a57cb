from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner

from levelhead.attention.capture import Captured, capture
from levelhead.cli.app import app as main_app
from levelhead.cli.audit import bounds_command
from levelhead.cli.report import page_of
from levelhead.data.base import Groups
from levelhead.inspecting import theory
from levelhead.inspecting.bounds import bounds_of, bounds_of_run
from levelhead.inspecting.bounds_page import bounds_page
from levelhead.inspecting.bounds_report import BoundsReport
from levelhead.models.networks import load_model
from levelhead.report import render
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.types import ConfigError, DataError

OPTIONS = {"normalize": True, "scale": True, "absolute": True, "statistics": "position"}
RUN = {"split": "test"}
app = typer.Typer()
app.command()(bounds_command)


def experiment(method: str) -> Any:
    return build_experiment(
        {
            "data": {"name": "portraits", "train_size": 64, "validation_size": 80, "test_size": 80},
            "method": {"name": method},
            "model": {"hidden_size": 16, "layers": 2, "heads": 2, "patch_size": 32},
            "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "threads": 1, "evaluation_batch_size": 32},
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("erm", "dam"):
        train_run(experiment(method), folder / method)
    return folder


def batches(
    query: Tensor,
    key: Tensor,
    *,
    debiased: tuple[Tensor, Tensor] | None = None,
    valid: Tensor | None = None,
    readout: Tensor | None = None,
    size: int = 7,
) -> list[Captured]:
    left, right = debiased or (query, key)
    scaling = query.shape[-1] ** -0.5
    cut = [slice(start, start + size) for start in range(0, len(query), size)]
    return [
        Captured(
            query[rows],
            key[rows],
            left[rows],
            right[rows],
            scaling,
            None if valid is None else valid[rows],
            None if readout is None else readout[rows],
        )
        for rows in cut
    ]


def grouped(values: list[int] | Tensor, names: tuple[str, ...] = ("a", "b")) -> Groups:
    return Groups("style", torch.as_tensor(values), names)


def printed(report: BoundsReport, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(report.table())
    return captured.get()


def logits_of(captured: list[Captured]) -> np.ndarray:
    """All logits (rows, heads, queries, keys), the plain way."""
    pieces = []
    for batch in captured:
        key = batch.debiased_key.double()
        key = key.repeat_interleave(batch.query.shape[1] // key.shape[1], dim=1)
        pieces.append(batch.scaling * batch.debiased_query.double() @ key.transpose(2, 3))
    return torch.cat(pieces).numpy()


# ------------------------------------------------------------------------------------------------ runs


def test_a_debiased_run_is_measured_and_bounded(runs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (runs / "dam").rglob("*")}
    report = bounds_of_run(runs / "dam")
    assert {path: path.stat().st_mtime_ns for path in (runs / "dam").rglob("*")} == before

    data = experiment("dam").data
    model, groups = load_model(runs / "dam" / "model"), data.groups("test")[0]
    logits = logits_of(list(capture(model, data.examples("test").inputs, 32, "cpu")))
    members = groups.values.numpy()
    gaps = np.abs(logits[members == 0].mean(0) - logits[members == 1].mean(0))
    for head, place in enumerate(report.heads):
        assert place.gap == pytest.approx(gaps[head].max(), rel=1e-5)
        assert gaps[head, place.query, place.key] == pytest.approx(place.gap, rel=1e-5)
        assert place.readout == pytest.approx(gaps[head, 0].max(), rel=1e-5)
        assert place.gap < place.bound
        assert place.closest < 1
    assert report.arithmetic_check is True
    bounds = {bound.name: bound for bound in report.bounds}
    shares = np.bincount(members) / len(members)
    assert bounds["distribution_free"].value == pytest.approx(theory.distribution_free_bound(shares, 8))
    assert bounds["gaussian"].value == pytest.approx(theory.gaussian_bound(shares, 8))
    assert bounds["paper"].value == pytest.approx(theory.paper_bound(shares, 8))
    assert not bounds["without_absolute"].applies
    # With the split's own statistics all second moments are 1, so that the bound depends on the shares alone.
    assert {round(place.bound, 5) for place in report.own} == {round(bounds["distribution_free"].value, 5)}
    assert "% of the distribution-free bound" in report.finding
    assert "times the gap" in report.finding


def test_a_plain_run_is_measured_and_no_bound_applies(runs: Path) -> None:
    report = bounds_of_run(runs / "erm", "validation")
    assert report.statistics is None
    assert report.arithmetic_check is None
    assert report.largest.gap > 0
    assert report.own == ()
    assert all(math.isnan(place.bound) for place in report.heads)
    for bound in report.bounds:
        assert math.isnan(bound.value)
        assert "does not apply" in str(bound.reason)
    assert "so no bound applies" in report.finding
    assert "Bounds" not in printed(report)


def test_the_command_prints_and_writes_json(runs: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, [str(runs / "dam"), "--split", "test", "--json", str(tmp_path / "c.json"), "--attribute", "style"]
    )
    assert result.exit_code == 0, result.output
    assert "Paper, Theorem 1" in result.output
    value = json.loads((tmp_path / "c.json").read_text())
    assert value["arithmetic_check"] is True
    assert value["run"] == {"data": "portraits", "method": "dam", "seed": 0, "split": "test"}
    assert len(value["heads"]) == len(value["heads_with_statistics_of_the_split"]) == 2
    assert value["largest"]["gap"] < value["largest"]["bound"]
    assert [bound["name"] for bound in value["bounds"]] == [
        "distribution_free_measured",
        "distribution_free",
        "gaussian",
        "without_absolute",
        "paper",
    ]
    assert sum(group["share"] for group in value["groups"].values()) == pytest.approx(1)


@pytest.mark.parametrize("method", ["erm", "dam"])
def test_the_command_writes_a_page_that_says_the_same(method: str, runs: Path, tmp_path: Path) -> None:
    written = tmp_path / "c.json", tmp_path / "c.html"
    options = ["--json", str(written[0]), "--html", str(written[1])]
    result = CliRunner().invoke(app, [str(runs / method), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    value, page = json.loads(written[0].read_text()), page_of(written[0])
    assert page["finding"] == value["finding"]
    shown = written[1].read_text()
    assert f"{value['largest']['gap']:.4g}" in shown
    assert ("Paper, Theorem 1" in shown) == (method == "dam")


def test_a_page_of_undefined_figures_says_why() -> None:
    query = torch.rand(20, 2, 3, 4)
    report = bounds_of(batches(query, query), grouped([0] * 20), OPTIONS, RUN)
    page = bounds_page(report.to_dict())
    assert page["finding"].startswith("No gap of attention logits can be measured")
    assert not re.search(r"\bnan\b", render(page), re.IGNORECASE)


def test_mistakes_are_named(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no sensitive attribute 'hat'. Known: style"):
        bounds_of_run(runs / "dam", attribute="hat")
    with pytest.raises(DataError, match="not a run folder"):
        bounds_of_run(tmp_path)
    (tmp_path / "config.yaml").write_text((runs / "dam" / "config.yaml").read_text())
    with pytest.raises(DataError, match="not finished"):
        bounds_of_run(tmp_path)


# ------------------------------------------------------------------------------------------------ made-up attention


def test_several_groups_and_shared_key_heads() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(180, 4, 3, 5, generator=generator), torch.randn(180, 2, 3, 5, generator=generator)
    members = torch.arange(180) % 7 % 3
    query[members == 2] *= 3
    debiased = query.abs(), key.abs()
    made = batches(query, key, debiased=debiased, readout=torch.zeros(180, dtype=torch.int64))
    report = bounds_of(made, grouped(members, ("x", "y", "z")), OPTIONS, RUN)
    logits = logits_of(made)
    means = np.array([logits[members == group].mean(0) for group in range(3)])
    for pair, comparison in zip([(0, 1), (0, 2), (1, 2)], report.pairs, strict=True):
        assert comparison.gap == pytest.approx(np.abs(means[pair[0]] - means[pair[1]]).max(), rel=1e-6)
    assert report.largest.gap == max(pair.gap for pair in report.pairs)
    assert report.largest.groups in (("x", "z"), ("y", "z"))
    assert report.arithmetic_check is True
    bounds = {bound.name: bound for bound in report.bounds}
    assert bounds["paper"].reason == "not defined for more than two groups"
    shares = np.bincount(members) / 180
    assert bounds["distribution_free"].value == pytest.approx(theory.distribution_free_bound(shares, 5))
    assert bounds["without_absolute"].value == pytest.approx(theory.bound_without_absolute(shares, 5))
    assert "Largest gap of each pair" in printed(report)


def test_signs_kept_and_scale_left_out_change_what_applies() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 80, 1, 2, 3, generator=generator)
    groups = grouped(torch.arange(80) % 2)
    signed = {b.name: b for b in bounds_of(batches(query, key), groups, OPTIONS | {"absolute": False}, RUN).bounds}
    assert signed["without_absolute"].applies
    assert "keeps the sign" in str(signed["gaussian"].reason)
    centred = bounds_of(batches(query, key), groups, OPTIONS | {"scale": False}, RUN)
    assert "not divided" in str({b.name: b for b in centred.bounds}["distribution_free"].reason)
    assert bounds_of(batches(query, key), groups, OPTIONS | {"normalize": False}, RUN).arithmetic_check is None


def bounds_between(debiased: tuple[Tensor, Tensor], raw: tuple[Tensor, Tensor], **options: Any) -> BoundsReport:
    groups = grouped((torch.arange(len(raw[0])) >= len(raw[0]) // 2).long())
    return bounds_of(batches(*raw, debiased=debiased, size=100), groups, OPTIONS | options, RUN)


def spread() -> tuple[Tensor, Tensor]:
    """Queries and keys of two groups that differ in spread alone."""
    query, key = torch.randn(2, 400, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    query[:200] *= 5
    key[:200] *= 5
    return query, key


def test_the_own_statistics_of_a_model_that_keeps_signs_keep_them_too() -> None:
    query, key = spread()
    standard = ((query - query.mean(0)) / query.std(0, correction=0), (key - key.mean(0)) / key.std(0, correction=0))
    report = bounds_between(standard, (query, key), absolute=False)
    assert report.own[0].gap == pytest.approx(report.largest.gap, rel=1e-5)
    assert report.pairs[0].own_gap == report.own[0].gap
    assert report.signed == ()
    assert report.arithmetic_check is True
    assert "sign kept" not in printed(report)
    folded = bounds_between((standard[0].abs(), standard[1].abs()), (query, key))
    assert folded.own[0].gap == pytest.approx(folded.largest.gap, rel=1e-5)
    assert folded.own[0].gap > 5 * folded.signed[0].gap
    assert "sign kept" in printed(folded)


@pytest.mark.parametrize(
    ("option", "reason"), [({"scale": False}, "not divide by the deviation"), ({"twice": True}, "a second time")]
)
def test_what_the_own_statistics_would_not_make_is_left_out_with_a_reason(option: dict[str, Any], reason: str) -> None:
    query, key = spread()
    report = bounds_between((query.abs(), key.abs()), (query, key), **option)
    assert report.own == report.signed == ()
    assert math.isnan(report.pairs[0].own_gap)
    assert reason in report.to_dict()["no_statistics_of_the_split"]
    assert report.arithmetic_check is True
    text = " ".join(printed(report).split())
    assert reason in text
    assert "sign kept" not in text
    assert math.isnan({bound.name: bound.value for bound in report.bounds}["gaussian"])


@pytest.mark.parametrize("statistics", ["feature", "cls_feature"])
def test_pooled_statistics_have_no_bound_for_a_pair_of_positions(statistics: str) -> None:
    query, key = spread()
    report = bounds_between((query.abs(), key.abs()), (query, key), statistics=statistics)
    bounds = {bound.name: bound for bound in report.bounds}
    for name in ("distribution_free", "gaussian", "paper"):
        assert not bounds[name].applies
        assert bounds[name].to_dict()["applies"] is False
        assert bounds[name].reason == "bounds only the gap averaged over pairs of positions"
        assert math.isnan(report.pairs[0].to_dict()["bounds"][name])
    assert bounds["distribution_free_measured"].applies
    assert "paper" not in report.finding
    assert "averaged over pairs" in " ".join(printed(report).replace("│", " ").split())


@pytest.mark.parametrize("everywhere", [False, True])
def test_logits_that_are_not_finite_are_counted(everywhere: bool) -> None:
    query, key = spread()
    broken = query.abs().clone()
    broken[:, :, slice(None) if everywhere else 0] = torch.nan
    report = bounds_between((broken, key.abs()), (query, key))
    assert report.arithmetic_check is None
    assert f"{8 if everywhere else 4} mean logits of a group are not finite" in report.warnings[0]
    assert ("No gap" in report.finding) is everywhere
    assert "not finite" in printed(report)
    json.dumps(report.to_dict())
    raw = bounds_between((query.abs(), key.abs()), (query * torch.inf, key))
    assert raw.arithmetic_check is None
    assert "not finite" in raw.warnings[0]


def test_the_record_of_an_earlier_version_is_read() -> None:
    query, key = spread()
    old = {"statistics": "position", "normalize": True, "absolute": True}
    groups = grouped((torch.arange(400) >= 200).long())
    assert bounds_of(batches(query, key, debiased=(query.abs(), key.abs())), groups, old, RUN).arithmetic_check is True


def test_statistics_over_all_positions_break_the_ideal_bound_but_not_the_measured_one() -> None:
    rows, tokens = 1000, 17
    query, key = torch.zeros(2, rows, 1, tokens, 1)
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(25, 1)
    query[:100, 0, 0, 0], key[:100, 0, 3, 0] = signs.T
    scale = math.sqrt(rows * tokens / 100)  # deviation of the pooled values
    groups = grouped((torch.arange(rows) >= 100).long())
    made = batches(query, key, debiased=(query.abs() * scale, key.abs() * scale), size=300)
    report = bounds_of(made, groups, OPTIONS | {"statistics": "feature"}, RUN)
    assert report.largest.gap == pytest.approx(170.0, rel=1e-5)
    assert (report.largest.query, report.largest.key) == (0, 3)
    assert report.largest.bound == pytest.approx(170.0, rel=1e-5)
    assert report.own[0].gap == pytest.approx(10.0, rel=1e-5)
    assert report.arithmetic_check is True


def test_padding_is_left_out_and_lengths_may_differ() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 240, 2, 4, 3, generator=generator)
    lengths = torch.randint(2, 5, (240,), generator=generator)
    valid = torch.arange(4) < lengths[:, None]
    noise = torch.where(valid[:, None, :, None], 0, 1e6)
    members, last = torch.arange(240) % 2, lengths - 1
    clean = bounds_of(batches(query, key, valid=valid, readout=last), grouped(members), OPTIONS, RUN)
    made = batches(query + noise, key + noise, valid=valid, readout=last)
    dirty = bounds_of(made, grouped(members), OPTIONS, RUN)
    assert dirty.heads == clean.heads
    assert dirty.arithmetic_check is True
    assert any("Padding" in text for text in dirty.warnings)
    # The readout row is the last real token, another one in each row.
    first, second = (members == group for group in range(2))
    rows = (query[torch.arange(240), :, last][:, :, None].double() @ key.double().transpose(2, 3))[:, :, 0] / math.sqrt(
        3
    )
    gaps = []
    for position in range(4):
        there = valid[:, position]
        gaps.append((rows[first & there, :, position].mean(0) - rows[second & there, :, position].mean(0)).abs())
    expected = torch.stack(gaps).amax(0)
    assert [place.readout for place in clean.heads] == pytest.approx(expected.tolist(), rel=1e-6)
    # Batches that were cut to their own longest row give the same.
    cut = [
        Captured(
            b.query[:, :, :n], b.key[:, :, :n], b.query[:, :, :n], b.key[:, :, :n], b.scaling, b.valid[:, :n], b.readout
        )
        for b in batches(query, key, valid=valid, readout=last, size=3)
        if b.valid is not None
        for n in [int(b.valid.sum(1).max())]
    ]
    shorter = bounds_of(cut, grouped(members), OPTIONS, RUN)
    for one, other in zip((*shorter.heads, *shorter.own), (*clean.heads, *clean.own), strict=True):
        assert one.gap == pytest.approx(other.gap)
        assert one.readout == pytest.approx(other.readout)


def test_keys_with_few_rows_of_a_group_are_left_out_with_a_word() -> None:
    """Group b has 40 rows, of which three are long; these three would make the largest gap."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 140, 1, 4, 3, generator=generator)
    members = (torch.arange(140) >= 100).long()
    lengths = torch.full((140,), 4)
    lengths[103:] = 3
    query[100:103, :, 3], key[100:103, :, 3] = 50.0, 50.0
    made = batches(query, key, valid=torch.arange(4) < lengths[:, None], readout=torch.zeros(140, dtype=torch.int64))
    report = bounds_of(made, grouped(members), OPTIONS, RUN)
    assert report.rows_by_key == {"a": (100,) * 4, "b": (40, 40, 40, 3)}
    place = report.largest
    assert place.gap < 5
    assert place.key != 3
    assert place.rows == (100, 40)
    assert all(each.readout <= each.gap for each in report.heads)
    (told,) = [text for text in report.warnings if "left out" in text]
    assert told.startswith("Keys 3 are left out of the gaps with 'b': fewer than 30 of its rows")
    assert "100 and 40 rows" in report.finding
    text = " ".join(printed(report).split())
    assert "Rows behind each key: 'a' 100; 'b' 40 (keys 0 to 2), 3 (keys 3)." in text
    assert "A small percentage of a bound says that the bound is far away" in text
    record = report.to_dict()
    assert record["groups"]["b"]["rows_by_key"] == [40, 40, 40, 3]
    assert record["largest"]["rows"] == [100, 40]
    page = render(bounds_page(record))
    assert "fewer than 30 rows" in page
    assert "0 to 2" in page
    assert "A small percentage of a bound" in page


def test_many_lengths_are_told_in_one_line() -> None:
    query = torch.rand(200, 1, 12, 3)
    lengths = 12 - torch.arange(200) // 2 % 10
    valid = torch.arange(12) < lengths[:, None]
    report = bounds_of(batches(query, query, valid=valid), grouped(torch.arange(200) % 2), OPTIONS, RUN)
    text = " ".join(printed(report).split())
    assert "Rows behind each key: 'a' 100 (keys 0 to 2) down to 10 (keys 11); 'b' 100" in text


def test_a_group_of_few_rows_has_no_gap_and_counts_in_the_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 229, 1, 2, 3, generator=generator)
    members = torch.cat([torch.zeros(100), torch.ones(100), torch.full((29,), 2)]).long()
    query[200:], key[200:] = 50.0, 50.0
    report = bounds_of(batches(query, key), grouped(members, ("a", "b", "c")), OPTIONS, RUN)
    assert [pair.groups for pair in report.pairs] == [("a", "b")]
    assert report.largest.groups == ("a", "b")
    assert "'c' has fewer than 30 rows at every key: no gap with it is measured." in report.warnings
    bounds = {bound.name: bound.value for bound in report.bounds}
    shares = (100 / 229, 100 / 229, 29 / 229)
    assert bounds["distribution_free"] == pytest.approx(theory.distribution_free_bound(shares, 3, pair=(0, 1)))
    alone = bounds_of(batches(query[171:], key[171:]), grouped(members[171:] - 1, ("b", "c")), OPTIONS, RUN)
    assert math.isnan(alone.largest.gap)
    assert "test holds 30 rows or more of fewer than two groups" in alone.finding
    render(bounds_page(alone.to_dict()))


def test_a_record_without_rows_behind_keys_is_still_drawn() -> None:
    query, key = spread()
    record = bounds_between((query.abs(), key.abs()), (query, key)).to_dict()
    before = render(bounds_page(record))
    for place in (*record["heads"], *record["heads_with_statistics_of_the_split"], record["largest"]):
        del place["rows"]
    for group in record["groups"].values():
        del group["rows_by_key"]
    after = render(bounds_page(record))
    assert "Rows behind each key" in before
    assert "Rows behind each key" not in after


def test_the_old_verb_still_works_hidden_and_names_the_new_one(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = CliRunner().invoke(main_app, ["certify", str(runs / "dam"), "--json", str(tmp_path / "old.json")])
    assert told.exit_code == 0, told.output
    assert told.stderr.splitlines() == [
        "`levelhead certify` is called `levelhead figure bounds` now; the old name will go."
    ]
    plain = CliRunner().invoke(main_app, ["figure", "bounds", str(runs / "dam"), "--json", str(tmp_path / "new.json")])
    assert plain.exit_code == 0, plain.output
    assert plain.stderr == ""
    assert (tmp_path / "old.json").read_bytes() == (tmp_path / "new.json").read_bytes()
    listed = CliRunner().invoke(main_app, ["--help"]).output
    assert "bounds" in CliRunner().invoke(main_app, ["figure", "--help"]).output
    assert "certify" not in listed


def test_features_that_do_not_vary_are_no_trouble() -> None:
    query = torch.full((80, 1, 2, 3), 1e3)
    report = bounds_of(batches(query, query), grouped(torch.arange(80) % 2), OPTIONS, RUN)
    assert report.largest.gap == pytest.approx(0, abs=1e-6)
    assert report.own[0].gap == 0
    assert report.arithmetic_check is True
    assert "by at most" in printed(report)


def test_a_group_without_rows_is_undefined_with_a_reason() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 80, 1, 2, 3, generator=generator)
    absent = bounds_of(batches(query, key), grouped(torch.arange(80) % 2, ("a", "b", "c")), OPTIONS, RUN)
    assert "No row of test belongs to 'c'." in absent.warnings
    assert math.isfinite({b.name: b.value for b in absent.bounds}["paper"])
    alone = bounds_of(batches(query, key), grouped([0] * 80), OPTIONS, RUN)
    assert math.isnan(alone.largest.gap)
    assert alone.arithmetic_check is None
    assert "test holds rows of fewer than two groups" in alone.finding
    assert "Head" in printed(alone)
    assert alone.to_dict()["largest"]["groups"] is None
    with pytest.raises(DataError, match="80 rows went through the network, and 81 have a group"):
        bounds_of(batches(query, key), grouped([0, 1, 1] * 27), OPTIONS, RUN)
    with pytest.raises(DataError, match="has no rows"):
        bounds_of([], grouped(torch.zeros(0, dtype=torch.int64)), OPTIONS, RUN)


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_the_terminal(width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 80, 12, 17, 3, generator=generator)
    text = printed(bounds_of(batches(query, key), grouped(torch.arange(80) % 2), OPTIONS, RUN), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
