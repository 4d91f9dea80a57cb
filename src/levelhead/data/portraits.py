"""Portraits: the embedded data set, drawn by this file from a seed. No person was photographed.

A picture is a 64x64 drawn face. The task is its hair colour, light or dark. The group is a style that says nothing
about anybody: *round* (round glasses, round collar, dotted top) or *angular* (square glasses, V collar, striped
top). ``correlation`` ties the two together, from independent (0) to a joint table (1), by default about that of blond
hair and perceived gender in CelebA, so that a plainly trained classifier learns to lean on the style.

Three settings have a known truth about why a gap arises:

- ``correlation: 0``: style and hair colour are independent. There is nothing to lean on.
- ``correlation: 1, test_correlation: 0``: a **shortcut**. The style tells the hair colour in training, some training
  rows contradict it, and test rows have no such tie: leaning on the style is an error.
- ``correlation: 1``: **base rates** differ between the groups, in training as in test. Leaning on the style is what a
  well-calibrated classifier does; the gap is what the base rates imply.

Every example has its own random stream, keyed by (seed, split, position): a larger split begins with the smaller
one's pictures, and two correlations show the same faces with hair recoloured. Drawing uses only + - * / sqrt and
uniform draws, which IEEE arithmetic fixes, so the pictures are the same on every platform.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.data.base import Card, Examples, Groups, Inputs, Split, refuse_one_class
from levelhead.data.images import ImageInputs
from levelhead.data.made_up import MadeUp

Array = NDArray[np.float64]

SIDE = 64
CLASS_NAMES = ("dark hair", "light hair")
GROUP_NAMES = ("round", "angular")
MASK_NAMES = ("background", "face", "hair", "clothes", "glasses")

# The uniform draws of an example, in order. New names go at the end: the order fixes every picture.
DRAWS = """
    group label
    hair_a hair_b hair_tint hair_length hair_volume strand
    fringe_height fringe_slope fringe_curve
    shift_x shift_y scale width
    skin skin_hue skin_mix iris smile blush
    frame_hue frame_dark top_hue top_value trim
    light light_x light_y cast_red cast_blue
    background_hue background_value background_slope pattern pattern_size pattern_strength
    noise
""".split()  # noqa: SIM905 (a list of words reads better so)

HAIR_TINTS = np.array(
    [(1.12, 0.98, 0.70), (1.0, 1.0, 0.97), (1.22, 0.93, 0.68), (1.10, 0.93, 1.02), (0.92, 1.01, 1.12)]
)
SKIN_DARK = np.array((0.34, 0.23, 0.18))
SKIN_LIGHT = np.array((0.98, 0.85, 0.75))
SKIN_PLAYFUL = np.array([(0.72, 0.66, 0.92), (0.62, 0.85, 0.70), (0.60, 0.78, 0.92)])
IRISES = np.array([(0.28, 0.18, 0.12), (0.20, 0.40, 0.60), (0.22, 0.45, 0.30), (0.40, 0.30, 0.50)])
CHUNK = 16  # pictures drawn together: their planes stay in the processor's cache


class Portfolio(NamedTuple):
    """A drawn split: pixels (n, 3, 64, 64) uint8, masks (n, 64, 64) uint8, labels (n,) and groups (n,) int64."""

    pixels: Tensor
    masks: Tensor
    labels: Tensor
    groups: Tensor


@dataclass(frozen=True)
class Portraits(MadeUp):
    """Synthetic portraits: tell light hair from dark, with a style as the group.

    ``correlation`` in [0, 1]: 0 makes hair colour and style independent, with equally many light-haired as at 1;
    1 gives the joint table of ``angular_rate``, ``light_given_round`` and ``light_given_angular``, by default about
    CelebA's (15 % light hair, 42 % angular; light hair for 2 % of the angular and 24 % of the round).
    ``test_correlation`` is that of the test split (None: as in training; validation is always as training).
    ``backdrop`` in [0, 1] makes the style easier to see: at 1 each style has its own half of the background's colours.
    ``difficulty`` in [0, 1] widens the band of hair shades that light and dark hair share. ``root`` is ignored.
    Raises :class:`~levelhead.types.ConfigError` for options out of range.
    """

    seed: int = 0
    correlation: float = 1.0
    test_correlation: float | None = None
    angular_rate: float = 0.42  # CelebA, rounded: P(Male), P(Blond | not Male), P(Blond | Male)
    light_given_round: float = 0.24
    light_given_angular: float = 0.02
    difficulty: float = 0.5
    backdrop: float = 0.0
    train_size: int = 2000
    validation_size: int = 500
    test_size: int = 2000

    shares: ClassVar[tuple[str, ...]] = (
        "correlation", "test_correlation", "angular_rate", "light_given_round", "light_given_angular", "difficulty",
        "backdrop",
    )  # fmt: skip
    card: ClassVar[Card] = Card(
        title="Portraits (drawn)",
        task="hair colour: dark or light",
        groups="drawing style: round or angular",
        licence="Apache-2.0, as the code that draws them",
        citation="levelhead, levelhead.data.portraits",
        url="",
        caution="Drawn faces for tests and demonstrations; a figure measured here says nothing about real people.",
    )

    def examples(self, split: Split) -> Examples:
        """Return the pictures of ``split`` (n, 3, 64, 64) and their hair colours."""
        drawn = self._draw(split)
        refuse_one_class(drawn.labels, CLASS_NAMES, "hair", f"Portraits, {split}")
        return ImageInputs(drawn.pixels).with_labels(drawn.labels.clone(), CLASS_NAMES)

    def inputs(self, split: Split) -> Inputs:
        """Return the pictures of ``split`` (n, 3, 64, 64) alone."""
        return ImageInputs(self._draw(split).pixels)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the style of every picture of ``split``; paints none."""
        groups, _ = _assign(*self._made_of(split), *self._joint_table(split))
        return (Groups("style", torch.from_numpy(groups), GROUP_NAMES),)

    def masks(self, split: Split) -> Tensor:
        """Return what each pixel shows, (n, 64, 64) uint8 codes that :data:`MASK_NAMES` names by value."""
        return self._draw(split).masks.clone()

    def _draw(self, split: Split) -> Portfolio:
        return _draw_split(*self._made_of(split), *self._joint_table(split), self.difficulty, self.backdrop)

    def _joint_table(self, split: Split) -> tuple[float, tuple[float, float, float]]:
        """Return the correlation of a split, and the rates of the joint table at correlation 1."""
        own = self.test_correlation if split == "test" else None
        rates = (self.angular_rate, self.light_given_round, self.light_given_angular)
        return self.correlation if own is None else own, rates


@lru_cache(maxsize=6)
def _draw_split(
    seed: int,
    split: int,
    size: int,
    correlation: float,
    rates: tuple[float, float, float],
    difficulty: float,
    backdrop: float,
) -> Portfolio:
    pixels = np.empty((size, 3, SIDE, SIDE), np.uint8)
    masks = np.empty((size, SIDE, SIDE), np.uint8)
    groups, labels = _assign(seed, split, size, correlation, rates)
    for start in range(0, size, CHUNK):
        rows = slice(start, min(start + CHUNK, size))
        streams = [_stream(seed, split, row) for row in range(rows.start, rows.stop)]
        draws = dict(zip(DRAWS, np.stack([stream.random(len(DRAWS)) for stream in streams], 1), strict=True))
        noise = np.stack([stream.random((SIDE, SIDE, 3), np.float32) for stream in streams])
        shade = _hair_shade(draws, labels[rows], difficulty)
        pixels[rows], masks[rows] = _paint(draws, noise, shade, groups[rows] == 1, backdrop)
    return Portfolio(*(torch.from_numpy(array) for array in (pixels, masks, labels, groups)))


def _stream(seed: int, split: int, row: int) -> np.random.Generator:
    """Return the random stream of one example."""
    return np.random.Generator(np.random.PCG64([seed, split, row]))


def _assign(
    seed: int, split: int, size: int, correlation: float, rates: tuple[float, float, float]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return groups and labels (size,) with the joint table of this correlation and rates, by the first two draws."""
    group_draw, label_draw = np.stack([_stream(seed, split, row).random(2) for row in range(size)], 1)
    angular, light_given_round, light_given_angular = rates
    groups = (group_draw < angular).astype(np.int64)
    extreme = np.where(groups == 1, light_given_angular, light_given_round)
    overall = angular * light_given_angular + (1 - angular) * light_given_round
    light_rate = (1 - correlation) * overall + correlation * extreme
    return groups, (label_draw < light_rate).astype(np.int64)


def _hair_shade(draws: dict[str, Array], labels: NDArray[np.int64], difficulty: float) -> Array:
    """Return the hair's brightness (n,); light and dark hair share a band as wide as the difficulty says."""
    away = 0.62 * (draws["hair_a"] + draws["hair_b"]) / 2 - 0.28 * difficulty  # triangular, may cross the middle
    return 0.50 + np.where(labels == 1, 1.0, -1.0) * away


def _hue(draw: Array, value: Array | float, saturation: float) -> Array:
    """Return a colour (n, 3) on the wheel at ``draw`` turns, made of straight ramps."""
    offsets = np.array((0.0, 1 / 3, 2 / 3))
    wheel = np.clip(2 - 6 * np.abs((draw[:, None] + offsets) % 1 - 0.5), 0, 1)
    return np.asarray(value)[..., None] * (1 - saturation + saturation * wheel)


def _triangle(phase: Array) -> Array:
    """Return a triangle wave of period 1 between -1 and 1."""
    return 4 * np.abs(phase % 1 - 0.5) - 1


def _ellipse(x: Array, y: Array, half_width: Array | float, half_height: Array | float) -> Array:
    radius = np.sqrt((x / half_width) ** 2 + (y / half_height) ** 2)
    return (radius - 1) * np.minimum(half_width, half_height)


def _box(x: Array, y: Array, half_width: Array | float, half_height: Array | float, corner: float) -> Array:
    out_x, out_y = np.abs(x) - half_width + corner, np.abs(y) - half_height + corner
    outside = np.sqrt(np.maximum(out_x, 0) ** 2 + np.maximum(out_y, 0) ** 2)
    return outside + np.minimum(np.maximum(out_x, out_y), 0) - corner


class _Canvas:
    """Pixels of all pictures in one row, (n x 64 x 64, 3), and their mask codes; ``scale`` (n, 1, 1) of the faces."""

    def __init__(self, colours: Array, scale: Array) -> None:
        self.colours, self.scale = colours, scale
        self.codes = np.zeros(len(colours), np.uint8)

    def lay(self, distance: Array, colour: Array, code: str | None = None, opacity: float = 1.0) -> None:
        """Paint where ``distance`` is negative, in one colour a picture (n, 3) or one a pixel."""
        edge = (0.5 - distance * self.scale).ravel()
        inside = np.flatnonzero(edge > 0)  # most shapes are small: touch their pixels alone
        coverage = np.minimum(edge[inside], 1)
        paint = colour[inside // (SIDE * SIDE)] if len(colour) == len(self.scale) else colour[inside]
        below = self.colours[inside]
        self.colours[inside] = below + (opacity * coverage)[:, None] * (paint - below)
        if code is not None:
            self.codes[inside[coverage >= 0.5]] = MASK_NAMES.index(code)


def _paint(
    draws: dict[str, Array], noise: NDArray[np.float32], shade: Array, angular: NDArray[np.bool_], backdrop: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Paint n portraits, back to front; ``shade`` (n,) is the hair's brightness, ``angular`` (n,) the style.

    Returns pixels (n, 3, 64, 64) and mask codes (n, 64, 64). Shapes are signed distances (negative inside) in the
    face's own coordinates, one unit being about one pixel, which gives exact masks and smooth edges at once.
    """
    count = len(shade)

    def ranged(name: str, low: float, high: float) -> Array:
        return (low + (high - low) * draws[name])[:, None, None]

    scale = ranged("scale", 0.88, 1.10)
    grid = np.arange(SIDE) + 0.5
    u = (grid[None, None, :] - 32 - ranged("shift_x", -4, 4)) / scale
    v = (grid[None, :, None] - 31 - ranged("shift_y", -3, 3)) / scale
    mirrored = np.abs(u)
    square = angular[:, None, None]

    # Background: a sloping tint with faint stripes or spots.
    # With a backdrop, each style has its own part of the colour wheel.
    background_hue = (1 - backdrop / 2) * draws["background_hue"] + backdrop / 2 * angular
    tint = _hue(background_hue, 0.35 + 0.6 * draws["background_value"], 0.35)
    slope = ranged("background_slope", -0.25, 0.25) * (u + v) / 45
    spacing = ranged("pattern_size", 7, 15)
    stripes, spots = _triangle((u + v) / spacing), _triangle(u / spacing) * _triangle(v / spacing)
    choice = draws["pattern"][:, None, None]
    pattern = np.where(choice < 0.35, 0.0, np.where(choice < 0.7, stripes, spots))
    pattern = ranged("pattern_strength", 0.03, 0.14) * np.clip(3 * pattern, -1, 1)
    canvas = _Canvas((tint[:, None, None] * (1 + slope + pattern)[..., None]).reshape(-1, 3), scale)
    lay = canvas.lay

    # Hair: one colour with strands and a band of shine, behind and in front of the head.
    tints = HAIR_TINTS[(draws["hair_tint"] * len(HAIR_TINTS)).astype(int)]
    crown = np.sqrt(u**2 + (v + 2) ** 2)
    strands = 0.09 * _triangle((u * 0.9 + 0.25 * v) / ranged("strand", 3, 5))
    shine = 0.16 * np.clip(1 - np.abs(crown - 14) / 3, 0, 1) * (v < -6)
    hair = ((shade[:, None] * tints)[:, None, None] * (1 + strands + shine)[..., None]).reshape(-1, 3)
    volume = ranged("hair_volume", 14.6, 17.5)
    cap = _ellipse(u, v + 4, volume, volume + 1.5)
    length = ranged("hair_length", 1, 22)
    curtain = _box(u, v - (length - 6) / 2, volume, (length + 6) / 2, 5.0)
    lay(np.minimum(cap, curtain), hair, "hair")

    # Top and neck. The collar's shape and the top's pattern belong to the style.
    skin = SKIN_DARK + draws["skin"][:, None] * (SKIN_LIGHT - SKIN_DARK)
    playful = SKIN_PLAYFUL[(draws["skin_hue"] * len(SKIN_PLAYFUL)).astype(int)]
    mix = 0.85 * np.clip(3 * draws["skin_mix"] - 2, 0, 1)[:, None]
    skin = skin + mix * (playful * (0.55 + 0.45 * draws["skin"][:, None]) - skin)
    top = _hue(draws["top_hue"], 0.30 + 0.6 * draws["top_value"], 0.55)
    trim = np.where(draws["top_value"][:, None] > 0.5, 0.45 * top, 0.45 * top + 0.52)
    shoulders = _ellipse(u, v - 37, 23.0, 16.5)
    lay(shoulders, top, "clothes")
    dots = np.sqrt((u % 6 - 3) ** 2 + (v % 6 - 3) ** 2) - 1.5
    bars = np.abs(v % 5 - 2.5) - 1.0
    lay(np.maximum(np.where(square, bars, dots), shoulders + 0.5), trim, None)
    neckline = np.where(square, (1.1 * mirrored + v - 33) / 1.45, _ellipse(u, v - 19, 10.5, 9.0))
    lay(np.maximum(neckline - 2.2, shoulders), trim, "clothes")
    shadowed = 0.86 * skin
    lay(np.maximum(neckline, shoulders), shadowed, "face")
    lay(_box(u, v - 15, 5.2, 8.0, 2.0), shadowed, "face")

    # Head and features.
    width = ranged("width", 12.0, 13.6)
    lay(_ellipse(mirrored - width - 0.3, v - 1.5, 2.4, 3.2), 0.92 * skin, "face")
    lay(_ellipse(u, v, width * (1 - 0.12 * np.clip(v / 16, 0, 1)), 16.0), skin, "face")
    lay(_ellipse(mirrored - 8, v - 6, 2.8, 2.0), skin * 0.6 + np.array((0.38, 0.12, 0.14)), None, 0.6)
    lay(_ellipse(mirrored - 5.6, v, 2.8, 2.0), np.full((count, 3), 0.97))
    lay(_ellipse(mirrored - 5.5, v, 1.9, 2.0), IRISES[(draws["iris"] * len(IRISES)).astype(int)])
    lay(_ellipse(mirrored - 5.5, v, 1.0, 1.1), np.full((count, 3), 0.05))
    lay(_ellipse(u + 4.8, v + 0.7, 0.6, 0.6), np.full((count, 3), 1.0))
    lay(_ellipse(u - 6.0, v + 0.7, 0.6, 0.6), np.full((count, 3), 1.0))
    brow = np.abs(v + 5.6 - 0.06 * (mirrored - 5.5) ** 2) - 0.55
    lay(np.maximum(brow, np.abs(mirrored - 5.6) - 2.9), 0.45 * skin)
    lay(_ellipse(u, v - 5, 1.5, 1.1), 0.8 * skin)
    smile = ranged("smile", 0.2, 2.6)
    mouth = np.abs(v - 9.4 - smile * (1 - (u / 4.6) ** 2)) - 0.7
    lay(np.maximum(mouth, mirrored - 4.6), skin * 0.45 + np.array((0.22, 0.02, 0.05)))

    # Fringe: the part of the cap above a sloping, curved hairline.
    hairline = ranged("fringe_height", -10.5, -6.5) + ranged("fringe_slope", -0.3, 0.3) * u
    hairline = hairline + ranged("fringe_curve", -0.01, 0.035) * u**2
    lay(np.maximum(cap, (v - hairline) / 1.2), hair, "hair")

    # Glasses: the style's clearest sign.
    frame = _hue(draws["frame_hue"], 0.12 + 0.5 * draws["frame_dark"], 0.7)
    lens = np.where(square, _box(mirrored - 6, v, 5.0, 4.1, 0.4), _ellipse(mirrored - 6, v, 4.9, 4.9))
    lay(lens, np.full((count, 3), 1.0), None, 0.14)
    lay(np.abs(lens) - 0.75, frame, "glasses")
    lay(np.maximum(np.abs(v + 0.8) - 0.6, mirrored - 1.2), frame, "glasses")
    lay(np.maximum(np.abs(v + 1.2) - 0.6, np.abs(mirrored - 12.2) - 1.2), frame, "glasses")

    # Light: strength, direction, a cast, and the grain of a small camera.
    light = ranged("light", 0.62, 1.22) * (
        1 + ranged("light_x", -0.35, 0.35) * u / 32 + ranged("light_y", -0.3, 0.2) * v / 32
    )
    cast = 1 + 0.08 * np.stack([2 * draws["cast_red"] - 1, np.zeros(count), 2 * draws["cast_blue"] - 1], axis=1)
    picture = canvas.colours.reshape(count, SIDE, SIDE, 3) * light[..., None] * cast[:, None, None]
    picture += (noise - 0.5) * ranged("noise", 0.03, 0.13)[..., None]
    pixels = (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), canvas.codes.reshape(count, SIDE, SIDE)
