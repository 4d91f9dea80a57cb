"""The whole inspection: of users' own models, of runs, its page and JSON, and what it refuses."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, ViTConfig, ViTForImageClassification
from typer.testing import CliRunner

import levelhead as lh
from levelhead.cli.app import app
from levelhead.inspecting import inspect as inspecting
from levelhead.inspecting.inspect import inspect_runs
from levelhead.inspecting.inspection import Inspection, pooled
from levelhead.inspecting.measure import Place
from levelhead.inspecting.probes import Readability
from levelhead.report import render
from levelhead.types import ConfigError, DataError, Estimate
from tiny import bert_config, tiny_appended

PORTRAITS = [
    "--set", "data.train_size=160", "--set", "data.validation_size=60", "--set", "data.test_size=240",
    "--set", "train.epochs=1", "--set", "model.patch_size=16", "--set", "train.threads=1",
]  # fmt: skip


def texts(rows: int = 160, told: bool = True) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Token 5 or 6 tells the class; token 7 or 8 the group, if it is ``told``."""
    draw = np.random.default_rng(0)
    label, member = draw.integers(0, 2, rows), draw.integers(0, 2, rows)
    ids = draw.integers(10, 40, (rows, 8))
    ids[:, 0], ids[:, 2] = 2, 5 + label
    if told:
        ids[:, 4] = 7 + member
    lengths = draw.integers(6, 9, rows)
    made = [
        {"input_ids": torch.tensor(one[:length]), "labels": int(y)}
        for one, length, y in zip(ids, lengths, label, strict=True)
    ]
    return made, {"dialect": ["north" if one else "south" for one in member]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for method in ("erm", "dam"):
        for seed in (0, 1) if method == "erm" else (0,):
            made[f"{method}{seed}"] = folder / f"{method}{seed}"
            typed = ["train", "portraits_erm_shortcut", "--set", f"method.name={method}", "--seed", str(seed)]
            result = CliRunner().invoke(app, [*typed, *PORTRAITS, "--out", str(made[f"{method}{seed}"])])
            assert result.exit_code == 0, result.output
    return made


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Recipes of finished runs, by the name of a folder; there are no folders, so that opening one fails."""
    made: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(inspecting, "require_finished", lambda folder: None)
    monkeypatch.setattr(inspecting, "read_run", lambda folder: SimpleNamespace(recipe=made[str(folder)]))
    return made


def classifier() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(bert_config())


def test_a_text_classifier_of_a_user_that_is_told_the_group():
    rows, groups = texts()
    found = lh.inspect(classifier(), rows, groups, permutations=99)
    places = found.models["model"].places
    assert list(places) == ["input", "query", "key", "selected", "other", "context", "output", "logits"]
    assert places["other"].linear_given.p <= 0.02  # a mean over tokens, and one of them is the group
    assert places["key"].gap_after is None
    assert "a linear probe reads the group beyond the label" in " ".join(found.sentences()).lower()
    assert "differ in length" in found.models["model"].attention.disparity.figure.reason
    assert found.models["model"].curves.deletion_gap.defined
    frame = found.to_frame().set_index(["attribute", "group", "figure"])["value"]
    assert frame["model", "Other values", "AUC given the label"] == places["other"].linear_given.area.value
    assert found.groups.keys() == {"north", "south"}
    page = render(found.page())
    assert "Change of the gap without the direction" in page
    assert found.to_html() == render(Inspection.make_page(json.loads(json.dumps(found.to_dict()))))


def test_a_text_without_the_group_tells_none():
    rows, groups = texts(told=False)
    found = lh.inspect(classifier(), rows, groups, permutations=99)
    below = [one.linear_given.p <= 0.05 for one in found.models["model"].places.values()]
    assert sum(below) <= 3  # places are not independent


def test_a_picture_classifier_of_a_user_and_its_debiased_sibling():
    torch.manual_seed(0)
    config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8)
    draw = np.random.default_rng(1)
    member, label = draw.integers(0, 2, 120), draw.integers(0, 2, 120)
    pixels = torch.randn(120, 3, 16, 16) + torch.tensor(member, dtype=torch.float)[:, None, None, None]
    frame = [
        {"pixel_values": one, "labels": int(y), "site": int(m)} for one, y, m in zip(pixels, label, member, strict=True)
    ]
    debiased = lh.attach(ViTForImageClassification(config))
    debiased.train()(pixels)
    found = lh.inspect(
        debiased, frame, "site", against=ViTForImageClassification(config), names=("debiased", "plain"), permutations=39
    )
    inside = found.models["debiased"]
    assert {"scores", "query before", "key before"} <= inside.places.keys()
    assert inside.attention.disparity.figure.defined
    assert inside.attention.free_bound == pytest.approx(np.sqrt(8) / min(member.mean(), 1 - member.mean()))
    assert np.isnan(found.models["plain"].attention.free_bound)
    assert inside.attention.largest <= inside.attention.moment_bound
    assert set(found.differences) <= inside.places.keys()
    assert found.models["plain"].places["output"].linear.p <= 0.03
    assert "debiased" in str(found)


def test_an_appended_layer_on_a_frozen_backbone():
    rows, groups = texts()
    found = lh.inspect(tiny_appended(), rows, groups, permutations=39)
    assert len(found.models["model"].layers) == 3


def test_runs_are_pooled(runs, tmp_path):
    html, file = tmp_path / "inside.html", tmp_path / "inside.json"
    typed = ["inspect", str(runs["erm0"]), str(runs["erm1"]), "--against", str(runs["dam0"]), "--permutations", "39"]
    result = CliRunner().invoke(app, [*typed, "--html", str(html), "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "erm: Logits" in result.output
    assert "dam: Logits" in result.output
    record = json.loads(file.read_text())
    assert record["kind"] == "inspection"
    assert record["runs"] == {"erm": 2, "dam": 1}
    assert set(record["models"]["erm"]["attention"]["parts"]) == {"background", "face", "hair", "clothes", "glasses"}
    assert "face: Share of attention" in html.read_text()
    again = CliRunner().invoke(app, ["report", str(file), "--html", str(tmp_path / "again.html")])
    assert again.exit_code == 0, again.output
    assert record["sentences"][0] in again.output.replace("\n", " ")


def test_few_rows_alike_labels_and_strange_names_give_reasons():
    rows, _ = texts(60)
    model = classifier()
    strange = ["a\x1b[31m<blink>" if at % 2 else "b" * 9000 for at in range(60)]
    found = lh.inspect(model, [row | {"labels": 0} for row in rows], {"x": strange}, permutations=19)
    inside = found.models["model"]
    assert not inside.gap.defined
    assert inside.places["output"].gap_change.reason
    assert inside.places["logits"].gap_change is None
    assert "\x1b" not in str(found)
    assert "<blink>" not in found.to_html()
    uneven = lh.inspect(model, rows, {"x": ["rare"] + ["often"] * 59}, permutations=19)
    assert "fewer than 20 rows" in uneven.models["model"].places["logits"].linear.area.reason
    assert uneven.to_html()
    one = lh.inspect(model, rows[:2], {"x": ["rare", "often"]}, permutations=19)
    assert "fewer than 20 rows" in one.models["model"].places["logits"].linear.area.reason


def test_the_two_largest_of_three_groups_are_compared_and_rows_without_a_group_counted():
    rows, _ = texts(120)
    model, long = classifier(), "x" * 300
    values = [*["b"] * 40, *[f"{long}1"] * 30, *[f"{long}2"] * 40, *[None] * 10]
    found = lh.inspect(model, rows, {"x": values}, permutations=19)
    assert found.groups == {"b": 40, f"{long}2": 40}  # long names stay apart
    assert any("Left out: xxx" in one for one in found.warnings)
    assert any(one.startswith("10 of 120 rows have no group in “x”") for one in found.warnings)
    assert long not in found.to_html()
    pair = (f"{long}1", "b")
    assert lh.inspect(model, rows, {"x": values}, pair=pair, permutations=19).groups == {f"{long}1": 30, "b": 40}


def test_a_pooled_figure_holds_rows_and_runs():
    several = [Estimate(value, value - 0.02, value + 0.02, 100) for value in (0.6, 0.62, 0.64)]
    shared, folds = pooled(several), pooled(several, folds=3)
    assert shared.value == pytest.approx(0.62)
    between = 4.3027 * 0.02 / np.sqrt(3)
    assert shared.high - shared.value == pytest.approx(np.hypot(0.02, between), abs=1e-4)
    assert folds.high - folds.value == pytest.approx(np.hypot(0.02 / np.sqrt(3), between), abs=1e-4)
    assert pooled([Estimate(0.5, 0.4, 0.6, 9), Estimate.undefined("no rows")]).reason == "in 1 of 2 runs no rows"
    assert pooled([several[0]]) == several[0]


def test_a_pooled_figure_is_cut_at_the_ends_of_its_own_scale():
    def around(value: float) -> Estimate:
        return Estimate(value, value - 0.01, value + 0.01, 100)

    area, names = Readability(around(0.95), 0.5, 0.6, 0.01), ("gap_change",)
    runs = [
        Place("queries", 4, area, area, area, area, **dict.fromkeys(names, around(value)), gap_after=around(value))
        for value in (0.05, 0.3)
    ]
    near = [replace(runs[0], gap_change=around(value)) for value in (0.05, 0.08)]
    found = pooled(runs)
    ends = {name: (getattr(found, name).low, getattr(found, name).high) for name in (*names, "gap_after")}
    assert ends["gap_change"] == (-1.0, 1.0)
    assert ends["gap_after"] == (0.0, 1.0)
    assert pooled(near).gap_change.low == pytest.approx(0.065 - np.hypot(0.01, 12.7062 * 0.015), abs=1e-3)  # below 0
    assert found.linear.area.high == pytest.approx(0.96)
    none = replace(area, area=Estimate.without_interval(0.9, 100, "all rows are alike"))
    assert np.isnan(pooled([none, none]).area.high)


@pytest.mark.parametrize("several", [2, 3, 7, 12, 39])
def test_several_runs_with_the_fewest_permutations_can_be_readable(several):
    one = Readability(Estimate(0.99, 0.98, 0.995, 1000), 0.5, 0.53, 1 / (1 + 39))
    assert pooled([one] * several).p == 0.05
    undefined = Readability(Estimate.undefined("fewer than 20 rows of a group"), np.nan, np.nan, np.nan)
    for runs in ([undefined] * several, [one] * (several - 1) + [undefined]):
        assert np.isnan(pooled(runs).p)
        assert pooled(runs).to_dict()["p"] is None
    assert pooled([replace(one, p=0.7)] * several).p == 1.0


def test_runs_that_are_no_seeds_or_folds_of_one_training_are_not_pooled(recipes):
    recipes.update({name: {"data": {"name": "x"}, "method": {"name": name}} for name in ("erm", "dam")})
    erm, dam = Path("erm"), Path("dam")
    with pytest.raises(ConfigError, match=r"differ in method\.name: 'erm' and 'dam'.*--against"):
        inspect_runs([erm, dam])
    with pytest.raises(ConfigError, match="are one training"):
        inspect_runs([dam], [erm, erm])


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"name": "utkface"}, "data.name: 'celeba' and 'utkface'"),
        ({"name": "celeba", "target": "Blond_Hair"}, "data.target: 'Attractive' and 'Blond_Hair'"),
        ({"name": "celeba", "target": "Attractive", "threshold": 0.5}, "data.threshold: None and 0.5"),
        ({"name": "celeba", "target": "Attractive", "root": "elsewhere", "fold": 1}, None),
    ],
)
def test_runs_of_another_task_are_refused_before_any_is_opened(recipes, other, key):
    data = {"a": {"name": "celeba", "target": "Attractive"}, "b": other}
    recipes.update({name: {"data": one, "method": {"name": "erm"}} for name, one in data.items()})
    said = f"^a and b differ in {re.escape(key)}. Give runs of one data set" if key else "^a is not a run folder"
    for sides in (([Path("a")], [Path("b")]), ([Path("a"), Path("b")], [])):
        with pytest.raises(ConfigError if key else DataError, match=said):
            inspect_runs(*sides)


def test_a_change_without_an_interval_has_a_reason():
    rows, groups = texts()
    model = classifier()
    with torch.no_grad():
        model.classifier.bias[1] += 100  # every row is of one class, whatever is taken off
    found = lh.inspect(model, rows, groups, permutations=19)
    assert "every draw" in found.models["model"].places["query"].gap_change.reason
    assert "No interval: every draw" in " ".join(str(found.text(all=True)).split())


def test_labels_meet_the_classes_of_a_model_by_name():
    rows, groups = texts(120)
    model = classifier()
    column = datasets.ClassLabel(names=["neg", "pos"])
    frame = [{"input_ids": one["input_ids"].tolist(), "labels": one["labels"]} for one in rows]
    made = datasets.Dataset.from_list(frame).cast_column("labels", column)
    right = lh.inspect(model, rows, groups, permutations=19).models["model"].accuracy.value
    assert lh.inspect(model, made, groups, permutations=19).models["model"].accuracy.value == right  # LABEL_0, LABEL_1
    turned, named = copy.deepcopy(model), copy.deepcopy(model)
    for one, names in ((turned, ("pos", "neg")), (named, ("neg", "pos"))):
        one.config.id2label, one.config.label2id = dict(enumerate(names)), {name: at for at, name in enumerate(names)}
    found = lh.inspect(turned, made, groups, permutations=19).models["model"].accuracy.value
    assert found == pytest.approx(1 - right)
    with pytest.raises(ConfigError, match="same id2label"):
        lh.inspect(named, rows, groups, against=turned, permutations=19)
