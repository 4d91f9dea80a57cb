"""``lh.compare_models``: two models on the same rows, whatever the rows and the models are given as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

import levelhead as lh
from levelhead.metrics.names import MISSING_GROUP
from levelhead.own.compare import ModelComparison
from levelhead.own.page import two_models_page
from levelhead.own.rows import GroupColumns

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
NAMES = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}


def network(**options: Any) -> Any:
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(**SIZE, image_size=8, patch_size=4, **(NAMES | options)))


class Answers(torch.nn.Module):
    """Answers with the logits that the input holds, in the place of a classifier's."""

    def __init__(self, classifier: Any, column: int) -> None:
        super().__init__()
        self.classifier, self.column, self.config = classifier, column, classifier.config

    def forward(self, answers: torch.Tensor) -> Any:
        logits = torch.nn.functional.one_hot(answers[:, self.column], self.config.num_labels).float()
        return type("Output", (), {"logits": logits})


def answering(column: int) -> Any:
    return Answers(network(), column)


# label, old answer, new answer, site: 40 rows, the old one right for 20, the new one for 30
ROWS = [
    {"labels": label, "answers": torch.tensor([old, new]), "site": site}
    for label, old, new, site in [(0, 0, 0, "a"), (1, 0, 1, "a"), (1, 1, 0, "b"), (0, 1, 0, "b")] * 10
]


ROLES = ("plain", "debiased")


def compare(rows: Any = ROWS, **options: Any) -> ModelComparison:
    return lh.compare_models(answering(0), answering(1), rows, **{"names": ROLES, **options})


def test_figures_are_those_of_the_rows() -> None:
    found = compare()
    accuracy = found.changes["accuracy"]
    assert (found.rows, found.classes, found.audit) == (40, ("no", "yes"), None)
    assert (accuracy.old, accuracy.new, accuracy.difference.value) == pytest.approx((0.5, 0.75, 0.25))
    # Bonett and Price by hand: (21 - 11) / 42, and 1.959964 times the root of (32/42 - (10/42)^2) / 42.
    assert (accuracy.difference.low, accuracy.difference.high) == pytest.approx((-0.01586, 0.49206), abs=2e-4)
    assert found.agreement == {"both_right": 10, "only_new_right": 20, "only_old_right": 10, "both_wrong": 0}
    assert found.different == 30
    assert found.changes["true_positive_rate"].new == 0.5
    assert "No groups were given" in found.text(all=True)
    for figure in ("75.0% of 40 rows", "50.0%", "+25.0 points", "−1.6 to +49.2", "inconclusive"):
        assert figure in found.sentence


def test_groups_are_audited_as_the_audit_does() -> None:
    found = compare(groups="site", min_count=5)
    frame = found.predictions
    expected = lh.audit(
        frame["label"],
        frame["debiased_prediction"],
        sensitive_features={"site": [row["site"] for row in ROWS]},
        against=frame["plain_prediction"],
        positive="yes",
        min_count=5,
    )
    assert found.audit is not None
    assert found.audit.against is not None
    assert expected.against is not None
    assert found.audit.metrics == expected.metrics
    assert found.audit.against.by_attribute == expected.against.by_attribute
    assert (found.audit.against.old, found.audit.against.new) == ("plain", "debiased")
    assert "site" not in frame


def test_clusters_widen_every_interval_and_not_those_of_groups_alone() -> None:
    rows, people = [*ROWS] * 8, [*range(40)] * 8
    alone, together, by_group = (
        compare(rows),
        compare(rows, cluster=people),
        compare(rows, groups="site", cluster=people),
    )

    def width(change: Any) -> float:
        return float(change.difference.high - change.difference.low)

    whole = width(alone.changes["accuracy"])
    # 40 independent rows, not 320
    assert width(together.changes["accuracy"]) == width(by_group.changes["accuracy"]) > 2.5 * whole
    assert "Intervals are clustered: 320 rows in 40 clusters." in together.warnings
    assert width(by_group.audit.against.by_attribute["site"].metrics["accuracy"]) > 2 * whole
    assert width(together.changes["balanced_accuracy"]) > 2 * whole
    assert compare(cluster=range(40)).changes["accuracy"] == compare().changes["accuracy"]  # each row its own
    frame, index = pd.DataFrame([*ROWS] * 2), pd.Series([*range(40)] * 2, name="person")
    assert (
        compare(frame, cluster=index).changes["accuracy"] == compare([*ROWS] * 2, cluster=[*index]).changes["accuracy"]
    )
    few = compare([row | {"labels": int(place < 3)} for place, row in enumerate([*ROWS] * 2)], cluster=[*range(40)] * 2)
    assert any("come from fewer than 8 clusters" in one for one in few.warnings)
    assert not any("all rows" in one and "leave it out" in one for one in few.warnings)


def test_the_favourable_class_goes_by_its_name_or_its_position() -> None:
    by_name, by_position = (compare(groups="site", min_count=5, favourable=one) for one in ("no", 0))
    assert by_name.audit is not None
    assert by_position.audit is not None
    assert by_position.audit.to_dict()["rates"] == by_name.audit.to_dict()["rates"]
    assert by_position.audit.to_dict()["rates"]["site"]["outcome"]["outcome"] == "no"


@pytest.mark.parametrize("groups", [None, "site"])
def test_the_class_of_the_rates_stands_in_the_file_and_over_the_table(groups: Any) -> None:
    found = compare(groups=groups, positive="no")
    kept = found.to_dict()
    assert found.positive == kept["positive"] == "no"
    assert "<dt>Positive class</dt><dd>no</dd>" in found.to_html()
    del kept["positive"]  # a file that does not name it
    assert "Accuracy, change" in str(two_models_page(kept))


def three_classes() -> list[Any]:
    """The two models, of classes x, y and z."""
    three = {"id2label": dict(enumerate("xyz")), "label2id": {"x": 0, "y": 1, "z": 2}}
    return [Answers(network(**three), column) for column in (0, 1)]


def test_classes_of_three_or_more_are_named_where_rates_are_about_one() -> None:
    models = three_classes()
    found = lh.compare_models(*models, [*ROWS, ROWS[0] | {"labels": 2}])  # each class is set against the rest
    assert found.positive is None
    assert "true_positive_rate[z]" in found.changes
    named = lh.compare_models(*models, ROWS, positive="x", groups="site", favourable="y")
    assert named.audit is not None
    assert named.audit.positive == "x"
    # Named classes may be late among more classes than rows.
    many = {"id2label": {at: f"class {at}" for at in range(50)}, "label2id": {f"class {at}": at for at in range(50)}}
    models = [Answers(network(**many), column) for column in (0, 1)]
    rows = [row | {"labels": 48 + row["labels"]} for row in ROWS]
    found = lh.compare_models(*models, rows, groups="site", positive=48, favourable=49)
    assert found.audit is not None
    assert found.audit.positive == "class 48"


def test_groups_may_be_given_in_many_ways() -> None:
    column = {"site": list("aabb") * 10}
    for groups in ("site", ["site"], column, pd.DataFrame(column)):
        found = compare(groups=groups)
        assert found.audit is not None
        assert list(found.audit.groups) == ["a", "b"]


def test_page_and_notebook_show_it() -> None:
    hostile = "<b>x</b>"
    rows = [row | {"site": hostile if row["site"] == "a" else None} for row in ROWS]
    found = compare(rows, groups="site", names=("<i>old</i>", "new"))
    page = found.to_html()
    assert hostile not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert MISSING_GROUP in page
    assert "Each model was trained once" in page
    assert "<i>old" not in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["different"] == 30
    plain = compare().to_html()
    assert "No groups were given, so no figure is by group." in plain


def test_the_finding_of_a_page_is_the_gap() -> None:
    page = compare(groups="site").to_html()
    assert "the larger part of the equalized-odds gap changed from" in page
    same = lh.compare_models(answering(0), answering(0), ROWS, groups="site", names=ROLES)
    assert "predict the same class for all 40 rows, 50.0% correct" in same.sentence
    rows = [row | {"answers": torch.tensor([int(row["labels"]), 1])} for row in ROWS]
    assert compare(rows, groups="site").warnings[0].startswith("debiased predicts “yes” for every row")


def test_folders_models_and_frames(tmp_path: Path) -> None:
    plain = network()
    debiased = lh.attach(network()).train()
    pictures = torch.randn(40, 3, 8, 8)
    debiased(pictures)
    rows = [{"pixel_values": picture, "label": "yes" if at % 2 else "no"} for at, picture in enumerate(pictures)]
    in_memory = lh.compare_models(plain, debiased, rows)
    plain.save_pretrained(tmp_path / "plain")
    debiased.save_pretrained(tmp_path / "debiased")
    saved = lh.compare_models(tmp_path / "plain", str(tmp_path / "debiased"), pd.DataFrame(rows))
    assert in_memory.names == saved.names == ("plain", "debiased")
    turned = lh.compare_models(debiased, plain, rows)
    assert turned.names == ("old model", "new model")
    assert turned.predictions.columns[-3] == "new model_prediction"
    pd.testing.assert_frame_equal(in_memory.predictions, saved.predictions, atol=1e-6)
    assert saved.models[1].debias is not None
    assert saved.warnings == in_memory.warnings
    assert debiased.training is True  # as it was


def test_group_columns_are_not_opened_while_models_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {name: [row[name] for row in ROWS] for name in ("labels", "site")}
    columns["answers"] = [row["answers"].tolist() for row in ROWS]
    seen: list[Any] = []
    before = Answers.forward

    def forward(self: Any, answers: torch.Tensor) -> Any:
        seen.append(answers)
        return before(self, answers)

    monkeypatch.setattr(Answers, "forward", forward)
    dataset = datasets.Dataset.from_dict(columns)
    hidden = GroupColumns.of("site", dataset)
    assert hidden is not None
    assert set(hidden.hidden()[0]) == {"labels", "answers"}
    found = compare(dataset, groups="site")
    assert found.audit is not None
    assert len(seen) == 2
