from __future__ import annotations

from typing import Any

import pytest
import torch

from levelhead.data import SPLITS
from levelhead.data.portraits import MASK_NAMES, Portraits

SMALL: dict[str, Any] = {"train_size": 120, "validation_size": 40, "test_size": 40}


def test_a_split_has_pictures_labels_groups_and_masks() -> None:
    portraits = Portraits(**SMALL)
    examples, (groups,) = portraits.examples("train"), portraits.groups("train")
    batch = examples.inputs.batch(torch.tensor([3, 5]))
    assert batch["pixel_values"].shape == (2, 3, 64, 64)
    assert batch["pixel_values"].dtype == torch.float32
    assert batch["pixel_values"].abs().max() <= 1
    assert examples.labels.shape == groups.values.shape == (120,)
    assert groups.names == ("round", "angular")
    assert portraits.masks("train").shape == (120, 64, 64)


def test_the_same_seed_draws_the_same_pictures() -> None:
    first = Portraits(**SMALL).examples("train")
    assert first.fingerprint == Portraits(**SMALL).examples("train").fingerprint
    assert first.fingerprint != Portraits(seed=1, **SMALL).examples("train").fingerprint
    larger = Portraits(**{**SMALL, "train_size": 121}).examples("train")
    assert first.fingerprint != larger.fingerprint
    splits = [Portraits(**SMALL).inputs(split).keys() for split in SPLITS]
    assert larger.inputs.keys()[:120] == splits[0]  # it begins with the smaller split's pictures
    assert len({key for keys in splits for key in keys}) == 200


@pytest.mark.parametrize(
    ("correlation", "light_round", "light_angular"), [(0.0, 0.148, 0.148), (0.5, 0.194, 0.084), (1.0, 0.24, 0.02)]
)
@pytest.mark.slow
@pytest.mark.long
def test_the_joint_table_follows_the_correlation(correlation: float, light_round: float, light_angular: float) -> None:
    portraits = Portraits(correlation=correlation, train_size=1500)
    labels, (groups,) = portraits.examples("train").labels, portraits.groups("train")
    assert groups.values.double().mean() == pytest.approx(0.42, abs=0.05)
    for group, rate in ((0, light_round), (1, light_angular)):
        assert labels[groups.values == group].double().mean() == pytest.approx(rate, abs=0.05)


def test_groups_are_known_without_painting(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Portraits(**SMALL, seed=2, test_correlation=0.0)
    drawn = {split: data._draw(split).groups for split in SPLITS}
    monkeypatch.setattr("levelhead.data.portraits._draw_split", None)
    assert all(torch.equal(data.groups(split)[0].values, drawn[split]) for split in SPLITS)


def test_masks_say_where_the_hair_is() -> None:
    portraits = Portraits(**SMALL)
    pixels = portraits.examples("train").inputs.batch(torch.arange(120))["pixel_values"].mean(1)
    labels, hair = portraits.examples("train").labels, portraits.masks("train") == MASK_NAMES.index("hair")
    assert (hair.sum((1, 2)) > 60).all()
    brightness = torch.stack([picture[mask].mean() for picture, mask in zip(pixels, hair, strict=True)])
    assert brightness[labels == 1].mean() > brightness[labels == 0].mean() + 0.3
    assert set(portraits.masks("train").unique().tolist()) == set(range(len(MASK_NAMES)))


@pytest.mark.slow
def test_the_test_split_can_have_a_correlation_of_its_own() -> None:
    options = {"correlation": 1.0, "angular_rate": 0.5, "light_given_round": 0.9, "light_given_angular": 0.1}
    plain = Portraits(**options, train_size=200, test_size=300)
    shifted = Portraits(**options, test_correlation=0.0, train_size=200, test_size=300)
    assert shifted.examples("train").fingerprint == plain.examples("train").fingerprint
    assert torch.equal(shifted.groups("test")[0].values, plain.groups("test")[0].values)
    for data, expected in ((plain, 0.8), (shifted, 0.0)):
        labels, groups = data.examples("test").labels.float(), data.groups("test")[0].values
        assert (labels[groups == 0].mean() - labels[groups == 1].mean()).item() == pytest.approx(expected, abs=0.12)


def test_a_backdrop_gives_each_style_its_own_half_of_the_colours() -> None:
    """Round styles stand before reds to greens, angular ones before cyans to purples."""
    data = Portraits(backdrop=1.0, train_size=200)
    corners = data.examples("train").inputs.batch(torch.arange(200))["pixel_values"][:, :, :4, :4].mean((2, 3))
    groups = data.groups("train")[0].values
    blue = corners[:, 2] - corners[:, :2].max(1).values
    assert (blue[groups == 1] > blue[groups == 0].mean()).float().mean() > 0.9
