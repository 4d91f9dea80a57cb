"""Train four models on Adult, audit each by sex, race, both and age, and draw the page as pictures.

    python tools/adult_page.py --data adult.csv.gz --out adult

``--data`` is the train part of UCI's Adult with a header line; its last column holds <=50K or >50K. Half of the rows,
drawn at random, train the models; the others are audited. scikit-learn comes with levelhead[test]. Takes a minute.

What is written: NAME.csv (predictions and scores), NAME.html and NAME.json of ``levelhead audit`` for each model and
of one model against another, and with ``--pictures FOLDER`` what Chromium makes of the page of gradient boosting: 1280
and 390 pixels wide, and printed. The pictures hold counts and rates, no row.
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
WORDS = ("workclass", "marital-status", "occupation", "relationship", "native-country")
CROSSED = "sex and race"
SHOWN = "gradient_boosting"
MODELS = {
    "constant": "always the commoner answer",
    "logistic_regression": "logistic regression",
    "random_forest": "random forest",
    "gradient_boosting": "gradient boosting",
}
TALLEST = 3200
"""Pixels of a picture of the screen: the first screens of a long page."""


def train(data: Path, out: Path) -> None:
    """Write the answers of the four models to the held-out half; neither sex nor race is an input."""
    from sklearn.compose import make_column_transformer
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = pd.read_csv(data, skipinitialspace=True, keep_default_na=False)
    label = table.columns[-1]
    answers = table[label].str.rstrip(".").to_numpy()
    order = np.random.default_rng(0).permutation(len(table))
    fit, held = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    encode = make_column_transformer(
        (StandardScaler(), list(NUMBERS)),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(WORDS)),
    )
    models = {
        "constant": DummyClassifier(),
        "logistic_regression": LogisticRegression(max_iter=1000),
        "random_forest": RandomForestClassifier(100, min_samples_leaf=5, random_state=0),
        "gradient_boosting": HistGradientBoostingClassifier(random_state=0),
    }
    for name, model in models.items():
        made = make_pipeline(encode, model).fit(table.iloc[fit], answers[fit])
        score = made.predict_proba(table.iloc[held])[:, list(made.classes_).index(">50K")]
        written = table.iloc[held][["sex", "race", "age"]].assign(
            income=answers[held], predicted=np.where(score >= 0.5, ">50K", "<=50K"), score=score.round(6)
        )
        # --intersect would cross age, too: 40 groups, most of them tiny.
        written.insert(2, CROSSED, written["sex"] + ", " + written["race"])
        written.to_csv(out / f"{name}.csv", index=False)


def command(name: str, *more: str) -> list[str]:
    """Return the audit of one model as it is typed in the folder of the predictions."""
    grouped = [word for group in ("sex", "race", CROSSED, "age") for word in ("--group", group)]
    return [
        *("levelhead", "audit", f"{name}.csv", "--label", "income", "--prediction", "predicted"),
        *(*grouped, "--bins", "age=25,40,60"),
        *more,
    ]


def run(out: Path, typed: list[str]) -> str:
    """Run a command of levelhead; return what it prints."""
    whole = [sys.executable, "-m", *typed]
    return subprocess.run(whole, cwd=out, capture_output=True, text=True, check=True).stdout


def audit(out: Path) -> None:
    """Write a page for each model, and one that compares two."""
    for name in MODELS:
        # The constant has no scores to speak of: what is said is that it decides nothing.
        scores = () if name == "constant" else ("--score", "score")
        files = ("--html", f"{name}.html", "--json", f"{name}.json")
        run(out, command(name, *scores, *files))
    files = ("--html", "against.html", "--json", "against.json")
    run(out, command(SHOWN, "--against", "logistic_regression.csv", *files))


def tell(out: Path) -> None:
    """Print the gaps in equalized odds of each model, in points, as a table in Markdown."""
    columns = ("sex", "race", CROSSED, "age")
    print(f"| | accuracy | {' | '.join(columns)} |\n|---|---:|{'---:|' * len(columns)}")
    for name, title in MODELS.items():
        parts = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))["by_attribute"]
        gaps = [parts[column]["metrics"]["equalized_odds"] for column in columns]
        figures = [parts["sex"]["metrics"]["accuracy"], *gaps]
        cells = [f"{100 * one['value']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]" for one in figures]
        print(f"| {title} | {' | '.join(cells)} |")


def browse(folder: Path, page: Path, *options: str) -> str:
    """Return what Chromium prints about a page; it asks nobody."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    if not found:
        raise SystemExit("There is no Chromium on this machine: install Debian's chromium, or leave out --pictures.")
    typed = [
        *(found, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()),
    ]
    return subprocess.run(typed, capture_output=True, text=True, timeout=200, check=True).stdout


def draw(page: Path, pictures: Path, stem: str) -> None:
    """Write STEM-1280.png, STEM-390.png and STEM-print.png."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for width in (1280, 390):
            # A window of Chromium is never narrower than 500 pixels; a frame is.
            frame = folder / f"{width}.html"
            frame.write_text(
                f"<!doctype html><meta charset=utf-8><body style='margin:0'><iframe style='border:0;display:block' "
                f'width="{width}" height="{TALLEST}" srcdoc="{html.escape(text)}"></iframe>',
                encoding="utf-8",
            )
            shot = folder / f"{width}.png"
            browse(folder, frame, f"--screenshot={shot}", f"--window-size={max(width, 600)},{TALLEST}")
            small(Image.open(shot).crop((0, 0, width, TALLEST)), pictures / f"{stem}-{width}.png")
        printed = folder / "page.pdf"
        browse(folder, page, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
        sheets(printed, pictures / f"{stem}-print.png")


def sheets(printed: Path, picture: Path, most: int = 3) -> None:
    """Write the first pages of a PDF side by side."""
    try:
        import pypdfium2
    except ImportError:
        raise SystemExit("There is nothing to draw a PDF with: pip install pypdfium2.") from None
    pages = pypdfium2.PdfDocument(printed)
    drawn = [pages[at].render(scale=0.9).to_pil() for at in range(min(most, len(pages)))]
    wide = Image.new("RGB", (sum(one.width + 12 for one in drawn) + 12, drawn[0].height + 24), "#777777")
    across = 12
    for one in drawn:
        wide.paste(one, (across, 12))
        across += one.width + 12
    small(wide, picture)


def small(image: Image.Image, path: Path) -> None:
    """Write a picture in 64 colours, which text and lines need no more of."""
    image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Train, audit, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="csv, also with .gz; without, the predictions in --out are taken")
    parser.add_argument("--out", type=Path, required=True, help="folder of predictions and pages")
    parser.add_argument("--pictures", type=Path, help="folder of the pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.data:
        train(arguments.data, arguments.out)
    audit(arguments.out)
    tell(arguments.out)
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        draw(arguments.out / f"{SHOWN}.html", arguments.pictures, "audit-adult")


if __name__ == "__main__":
    main()
