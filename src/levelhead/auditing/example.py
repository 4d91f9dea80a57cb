"""The file of predictions that comes with the package, for ``levelhead audit --example``.

The csv beside this file holds 1,000 rows: the hair colour of a drawn portrait, what a small network says it is, and the
style in which the portrait is drawn. In training the style told the hair colour of nine portraits in ten; in these rows
it tells nothing. So the network leans on it, and the gap is known to be real. ``tools/make_example.py`` wrote the file.
"""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).with_name("example.csv")
LABEL, PREDICTION, GROUP, POSITIVE = "hair", "predicted", "style", "light"
ABOUT = "1,000 synthetic portraits: hair colour, the prediction of a small network, and drawing style."
