"""KLAAD with and without each of its losses: bias benchmarks, utility and attention gap, before and after, over seeds.

    OMP_NUM_THREADS=1 python benchmarks/klaad_ablation.py --model NAME_OR_FOLDER --data-root DATA \
        --set klaad.preset=llama-3.2-3b --runs runs/lm_ablation --json results/lm_stories260k.json

Five rows (cross-entropy alone; with the divergence; with the triplet loss; both without cross-entropy; all three) are
trained with each seed on StereoSet's training terms, and scored with the model before on StereoSet's held-out terms,
CrowS-Pairs, BBQ, BOLD, perplexity on a text, and the attention gap. Where a row leaves a loss out, its weight goes to
cross-entropy, or without that, is shared in proportion. One split by term serves all seeds, so that all are compared on
the same items. The JSON gets aggregates alone, and a table of the main figures stands beside it (.md). The same command
goes on where it was stopped: trainings from their checkpoints, benchmarks item by item.

BBQ, BOLD and the text are samples, so that the whole takes 30 to 40 minutes of one CPU core for 260,000 parameters:
--bold-prompts and --documents make them larger. --limit is for trying things out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from levelhead.bench.grid import parse_seeds
from levelhead.lm.base import Benchmark
from levelhead.lm.bbq import BBQ
from levelhead.lm.bold import BOLD
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.gap_report import UNITS as GAP_UNITS
from levelhead.lm.gap_report import gap_report
from levelhead.lm.intervals import over_seeds, paired_difference
from levelhead.lm.klaad_training import KlaadConfig, load_klaad, load_language_model, train_klaad
from levelhead.lm.model import LanguageModel
from levelhead.lm.perplexity import Perplexity
from levelhead.lm.runner import run_benchmark
from levelhead.lm.stereoset import StereoSet
from levelhead.lm.triplets import HELD_OUT_TERMS, TermSplit, split_terms, stereoset_triplets, write_terms
from levelhead.metrics import estimate_to_dict
from levelhead.report.text import counted
from levelhead.storage import write_json, write_text
from levelhead.terminal import spent
from levelhead.training.work import environment
from levelhead.types import Estimate

Figures = dict[str, Estimate]
BEFORE = "before"
HELD_OUT, BBQ_ITEMS = 0.4, 3  # share of the target terms; items of a template, condition and polarity
PLAIN = "CE"
ROWS = ("CE", "CE+KL", "CE+triplet", "KL+triplet", "full")
SHOWN = {
    "stereoset/stereotype_score": "StereoSet SS",
    "stereoset/language_modeling_score": "StereoSet LMS",
    "stereoset/icat": "StereoSet ICAT",
    "crows-pairs/causal_stereotype_likelier": "CrowS-Pairs, stereotype likelier",
    "bbq/accuracy_ambiguous": "BBQ accuracy, ambiguous",
    "bbq/accuracy_disambiguated": "BBQ accuracy, disambiguated",
    "bbq/bias_ambiguous": "BBQ s_AMB",
    "bbq/bias_disambiguated": "BBQ s_DIS",
    "bold/sentiment": "BOLD sentiment",
    "perplexity/bits_per_byte": "bits per byte",
    "gap/share_minus_chance": "largest gap on bias-bearing tokens, minus chance",
    "gap/bearing_gap": "attention gap, bias-bearing tokens",
    "gap/entropy": "attention entropy",
    "gap/likelihood_difference_absolute": "likelihood difference, absolute, nats",
}


def weights_of(row: str, whole: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the weights of a row; what is left out goes to cross-entropy, or in proportion to the other two."""
    _, kl, triplet = whole
    return {
        "CE": (1.0, 0.0, 0.0),
        "CE+KL": (1 - kl, kl, 0.0),
        "CE+triplet": (1 - triplet, 0.0, triplet),
        "KL+triplet": (0.0, kl / (kl + triplet), triplet / (kl + triplet)),
        "full": whole,
    }[row]


def benchmarks(arguments: argparse.Namespace, split: TermSplit) -> list[Benchmark]:
    """Return the benchmarks that every model is scored on."""
    return [
        StereoSet(terms=split.held_out_terms),
        CrowSPairs(),
        BBQ(per_template=BBQ_ITEMS),
        BOLD(per_group=arguments.bold_prompts),
        Perplexity(file=arguments.perplexity or arguments.data_root / "lm_text" / "wikitext2_test.txt.gz"),
    ]


def measure(model: LanguageModel, folder: Path, split: TermSplit, arguments: argparse.Namespace) -> Figures:
    """Score one model; figures by "benchmark/score" and "benchmark/part/score"."""
    found: Figures = {}
    for benchmark in benchmarks(arguments, split):
        limit = arguments.limit
        if benchmark.name == "perplexity":
            limit = min(arguments.documents, limit or arguments.documents)
        scores = run_benchmark(benchmark, model, arguments.data_root, folder, limit=limit)
        found |= {f"{benchmark.name}/{name}": figure for name, figure in scores.overall.items()}
        for part, figures in scores.parts.items():
            if benchmark.name != "bold" or "/" not in part:  # BOLD's 43 groups by themselves are too many
                found |= {f"{benchmark.name}/{part}/{name}": figure for name, figure in figures.items()}
    report = gap_report(model, split.held_out[: arguments.limit])
    return found | {f"gap/{name}": figure for name, figure in report.figures["after"].items()}


def loaded(config: KlaadConfig | None, folder: Path, split: TermSplit, arguments: argparse.Namespace) -> LanguageModel:
    """Train one cell, or go on with it, or load it; without ``config``, load the model before."""
    if config is None:
        return LanguageModel.load(arguments.model, "cpu", dtype=arguments.score_type)
    torch.manual_seed(config.seed)
    network, tokenizer = load_language_model(config.model)
    network.set_attn_implementation("eager")  # a step took 3.0 s so, and 4.3 s with torch's fused attention
    train_klaad(network, tokenizer, split.train[: arguments.limit], config, folder / "training")
    write_terms(folder / "training" / HELD_OUT_TERMS, split.held_out_terms)
    return LanguageModel.load(folder / "training", "cpu", dtype=arguments.score_type)


def split_of(arguments: argparse.Namespace) -> TermSplit:
    """Return the one split by term that serves all models: a share of 0.4 leaves 23 target terms to draw from."""
    return split_terms(stereoset_triplets(arguments.data_root), seed=0, share=HELD_OUT)


def work(config: KlaadConfig | None, folder: Path, arguments: argparse.Namespace) -> tuple[Figures, str, float]:
    """Train and score one model; return its figures, its fingerprint and the seconds of a processor."""
    torch.set_num_threads(1)
    started, split = time.process_time(), split_of(arguments)
    model = loaded(config, folder, split, arguments)
    return measure(model, folder, split, arguments), model.fingerprint(), time.process_time() - started


Cell = tuple[str, KlaadConfig | None, Path]


def cells(arguments: argparse.Namespace, whole: KlaadConfig) -> Iterator[Cell]:
    """Yield each model's row, its training (None: the model before) and its folder."""
    yield BEFORE, None, arguments.runs / BEFORE
    for seed in parse_seeds(arguments.seeds):
        for row in arguments.rows:
            klaad = replace(whole.klaad, weights=weights_of(row, whole.klaad.weights))
            folder = arguments.runs / f"{row.lower().replace('+', '-')}-seed{seed}"
            yield row, replace(whole, klaad=klaad, seed=seed), folder


def summary(found: dict[str, list[Figures]], rows: tuple[str, ...]) -> dict[str, Any]:
    """Return every figure before, and after each row with its differences, over seeds.

    Cross-entropy alone is a fine-tuning on the same sentences, so what the two other losses do is a row's difference
    to it, taken seed by seed on the same items.
    """
    (before,) = found[BEFORE]
    result: dict[str, Any] = {BEFORE: {name: estimate_to_dict(figure) for name, figure in before.items()}}
    for row in rows:
        result[row] = {
            name: {
                "after": estimate_to_dict(over_seeds([one[name] for one in found[row]])),
                "difference": estimate_to_dict(
                    over_seeds([paired_difference(figure, one[name]) for one in found[row]])
                ),
                "by_seed": [one[name].value for one in found[row]],
            }
            for name, figure in before.items()
            if all(name in one for one in found[row])
        }
        if row == PLAIN or PLAIN not in rows:
            continue
        pairs = list(zip(found[PLAIN], found[row], strict=True))
        for name in result[row]:
            beyond = over_seeds([paired_difference(plain[name], one[name]) for plain, one in pairs])
            result[row][name]["beyond_ce"] = estimate_to_dict(beyond)
    return result


def markdown(title: str, figures: dict[str, Any], rows: tuple[str, ...]) -> str:
    """Return two tables of the main figures: before and what each row changes, and rows less cross-entropy alone."""

    def cell(figure: dict[str, Any], sign: str) -> str:
        if figure["value"] is None:
            return "undefined"
        form = f"{sign}.6f" if 0 < abs(figure["value"]) < 5e-4 else f"{sign}.4f"  # differences of attention are small
        ends = "" if figure["low"] is None else f" [{figure['low']:{form}}, {figure['high']:{form}}]"
        return f"{figure['value']:{form}}{ends}"

    def table(heading: str, columns: tuple[str, ...], key: str, first: tuple[str, ...]) -> list[str]:
        found = [heading, "", "| score | " + " | ".join((*first, *columns)) + " |"]
        found.append("|---|" + "---:|" * len((*first, *columns)))
        for name, text in SHOWN.items():
            if name in figures[BEFORE]:
                cells = [cell(figures[BEFORE][name], "") for _ in first]
                cells += [cell(figures[row][name][key], "+") if name in figures[row] else "" for row in columns]
                found.append(f"| {text} | " + " | ".join(cells) + " |")
        return [*found, ""]

    heading = f"**{title}**; {{}}, 95% intervals over items and seeds"
    lines = table(heading.format("after minus before"), rows, "difference", (BEFORE,))
    others = tuple(row for row in rows if row != PLAIN)
    if PLAIN in rows and others:
        lines += table(heading.format(f"minus {PLAIN}"), others, "beyond_ce", ())
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a causal language model: a folder, or a name on the Hub")
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of trainings and answers; it goes on there")
    parser.add_argument("--json", type=Path, required=True, help="aggregates; the table goes beside it, as .md")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--bold-prompts", type=int, default=12, help="of each group")
    parser.add_argument("--perplexity", type=Path, help="a text, one document a line; default: WikiText-2's test part")
    parser.add_argument("--documents", type=int, default=200, help="of that text")
    parser.add_argument("--limit", type=int, help="triplets, pairs, and items of each category: to try it out")
    parser.add_argument("--score-type", choices=("float32", "bfloat16"), default="float32", help="numbers to score in")
    return parser.parse_args()


def main() -> None:
    """Train, score, sum up."""
    arguments = parse()
    console = Console(stderr=True)
    settings = [f"model.name={arguments.model}", "train.device=cpu", *arguments.settings]
    whole = load_klaad("klaad_small", settings)
    split = split_of(arguments)
    rows = arguments.rows = tuple(row for row in ROWS if row in arguments.rows)
    plan = list(cells(arguments, whole))
    for benchmark in benchmarks(arguments, split):
        benchmark.read(arguments.data_root)  # mistakes first
    found: dict[str, list[Figures]] = {name: [] for name in (BEFORE, *rows)}
    fingerprints, began = [], time.monotonic()
    for number, (row, config, folder) in enumerate(plan, start=1):
        scored, fingerprint, seconds = work(config, folder, arguments)
        found[row].append(scored)
        fingerprints.append(fingerprint)
        left = (time.monotonic() - began) / number * (len(plan) - number)
        name = row if config is None else f"{row}, seed {config.seed}"
        console.print(
            f"{number} of {len(plan)}: {name}, {seconds:.0f} s of CPU; about {spent(left)} left", soft_wrap=True
        )
    figures = summary(found, rows)
    recipe = whole.to_dict()
    recipe["model"]["name"] = Path(arguments.model).name
    seen = ("seeds", "bold_prompts", "documents", "limit", "score_type")
    fixed = {"held_out_share": HELD_OUT, "split_seed": 0, "bbq_per_template": BBQ_ITEMS}
    about = {
        "model": Path(arguments.model).name,
        "fingerprint": fingerprints[0],
        "recipe": recipe,
        "options": {name: getattr(arguments, name) for name in seen} | fixed,
        "triplets": len(split.train[: arguments.limit]),
        "held_out_terms": len(split.held_out_terms),
        "weights": {row: weights_of(row, whole.klaad.weights) for row in rows},
        "gap_units": dict(GAP_UNITS),
        "headlines": {
            f"{kind.name}/{score}": dict(zip(("side", "better", "ideal"), known, strict=True))
            for kind in (StereoSet, CrowSPairs, BBQ, BOLD, Perplexity)
            for score, known in kind.headlines.items()
        },
        "environment": environment(torch.device("cpu")),
    }
    write_json(arguments.json, about | {"rows": figures})
    seeds = counted(len(parse_seeds(arguments.seeds)), "seed")
    table = markdown(f"{about['model']}, {len(split.held_out_terms)} held-out terms, {seeds}", figures, rows)
    write_text(arguments.json.with_suffix(".md"), table)
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
