"""The commands ``levelhead lm``: bias benchmarks, attention alignment and attention gaps of language models."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from levelhead.cli.lm_samples import score_samples
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile, MismatchedWeights
from levelhead.storage import check_outputs, read_json, write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, listed

lm_app = typer.Typer(help="Language models: measure and reduce stereotypes.", no_args_is_help=True)
console = Terminal()


class Precision(StrEnum):
    """The number types that a model can be run in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class DeviceMap(StrEnum):
    """How layers are spread over GPUs."""

    auto = "auto"


@lm_app.command("bench")
def bench_command(
    benchmarks: Annotated[
        str,
        typer.Argument(
            help="One or more, e.g. stereoset,bbq (`levelhead list benchmarks`); your own is module:Class.",
            show_default=False,
        ),
    ] = "",
    model: Annotated[str | None, typer.Option(help="A language model: a folder, or a name on the Hub.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Score the answers of any system from this JSONL file instead.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option(help="Score this samples_*.jsonl of lm-evaluation-harness instead; several are compared."),
    ] = None,
    cluster: Annotated[str, typer.Option(help="--samples: documents equal in this field are drawn together.")] = "",
    by: Annotated[str, typer.Option(help="--samples: field of a document that is its category.")] = "",
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of answers and scores. Default: runs/lm-MODEL.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many items of each category; of BBQ, spread over templates.")
    ] = None,
    terms: Annotated[
        Path | None, typer.Option(help="StereoSet: only these target terms, one a line, e.g. held-out ones.")
    ] = None,
    normalise: Annotated[
        str | None, typer.Option(help="StereoSet: mean log-likelihood per token, or sum. Default: mean.")
    ] = None,
    choose: Annotated[
        str | None, typer.Option(help="BBQ: choose by mean or sum of log-likelihoods, or generate. Default: mean.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="BBQ: prompt, with {context}, {question}, {ans0}, {ans1}, {ans2}.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="BBQ: ask in the tokenizer's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="BBQ: system prompt of --chat.")] = None,
    per_template: Annotated[
        int | None, typer.Option(min=1, help="BBQ: only so many items of each template, condition and polarity.")
    ] = None,
    bold_per_group: Annotated[int | None, typer.Option(min=1, help="BOLD: only so many prompts of each group.")] = None,
    perplexity: Annotated[
        Path | None, typer.Option(help="Also measure perplexity on this text, one document a line.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    device_map: Annotated[DeviceMap | None, typer.Option(help="auto: spread the layers over all GPUs.")] = None,
    precision: Annotated[
        Precision, typer.Option(help="Number type; auto: the model's own on a GPU.")
    ] = Precision.float32,
    allow_mismatched_weights: MismatchedWeights = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Ask a language model the items of bias benchmarks, and print scores with 95% intervals.

    Answers are kept one by one: the same command resumes where it was stopped, also after kill -9. A score near its
    ideal on one benchmark does not show that a model is free of bias.

    Example: levelhead lm bench stereoset,crows-pairs,bbq,bold --model MODEL --data-root DATA --out runs/lm-before
    """
    names = [name for name in dict.fromkeys(part.strip() for part in benchmarks.split(",")) if name]
    folder = out or Path("runs") / f"lm-{Path(str(model)).name}"
    check_outputs(
        {"--json": json_file, "--html": html_file},
        folders={"--out": out if model is None else folder},
        inputs=[predictions, terms, perplexity, *(samples or ())],
        runs=[model],
    )
    if samples:
        if names or model is not None or predictions is not None or out is not None:
            raise ConfigError("--samples goes with --cluster, --by, --json and --html alone: repeat it for each log.")
        score_samples(samples, cluster, by, json_file, html_file, console)
        return
    if cluster or by:
        raise ConfigError("--cluster and --by are options of --samples: give a samples_*.jsonl.")
    from levelhead.lm.benchmarks import make_benchmark, recorded_class
    from levelhead.lm.runner import UNASKED_CHAT, run_benchmark, score_predictions, scores_file, scores_to_dict

    options: dict[str, dict[str, Any]] = {
        "stereoset": _given(terms=None if terms is None else _terms(terms), normalise=normalise),
        "bbq": _given(choose=choose, template=template, per_template=per_template, chat=chat or None, system=system),
        "bold": {} if bold_per_group is None else {"per_group": bold_per_group},
        "perplexity": {} if perplexity is None else {"file": perplexity},
    }
    if options["perplexity"] and predictions is None and "perplexity" not in names:
        names.append("perplexity")
    for name, given in options.items():
        if given and name not in names:
            raise ConfigError(f"An option of {name} is given, and {name} is not among the benchmarks: add it.")
    chosen = [make_benchmark(name, options.get(name)) for name in names]
    called = [benchmark.name for benchmark in chosen]
    if len(set(called)) < len(called):
        raise ConfigError(f"Two of these benchmarks have one name, {listed(called)}: run each into its own --out.")
    if not chosen:
        raise ConfigError("Name a benchmark, e.g. `levelhead lm bench bbq --model MODEL`.")
    if (model is None) == (predictions is None):
        raise ConfigError("Give --model (a language model to ask) or --predictions (answers of any system).")
    if predictions is not None:
        if len(chosen) > 1 or out is not None:
            raise ConfigError("--predictions scores one benchmark, and writes no folder: use --json, not --out.")
        scores, count = score_predictions(chosen[0], predictions, data_root, limit=limit)
        record = scores_to_dict(scores) | recorded_class(chosen[0]) | {"items": count, "limit": limit}
        _show([record], predictions.name)
        if json_file is not None:
            write_json(json_file, scores_to_dict(scores) | {"predictions": predictions.name, "limit": limit})
        if html_file is not None:
            _write_page(html_file, [record], predictions.name)
        return
    for benchmark in chosen:
        benchmark.read(data_root)  # mistakes first, before a large model is loaded
    if "stereoset" in names and terms is None:
        _refuse_trained_terms(str(model), data_root)
    from levelhead.lm.model import LanguageModel

    loaded = LanguageModel.load(
        str(model),
        device,
        dtype=precision.value,
        device_map=None if device_map is None else "auto",
        allow_mismatched_weights=allow_mismatched_weights,
    )
    if loaded.has_chat_template and not all(getattr(benchmark, "chat", True) for benchmark in chosen):
        console.print(f"Warning: {UNASKED_CHAT}", soft_wrap=True)
    results = []
    try:
        for benchmark in chosen:
            scores = run_benchmark(benchmark, loaded, data_root, folder, limit=limit, console=console)
            _show([read_json(scores_file(folder, benchmark.name))], Path(str(model)).name)
            results.append(scores_to_dict(scores))
    except KeyboardInterrupt:
        console.print("Stopped. The same command resumes from there.")
        raise typer.Exit(130) from None
    if json_file is not None:
        write_json(json_file, {"model": loaded.fingerprint(), "limit": limit, "benchmarks": results})
    if html_file is not None:
        _write_page(html_file, [read_json(scores_file(folder, name)) for name in called], Path(str(model)).name)
    console.print(f"Next: levelhead lm compare {escape(str(folder))} OTHER_FOLDER", soft_wrap=True)


def _show(records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page
    from levelhead.report.terminal import drawn

    console.print(drawn(scores_page(records, name=name)))


def _write_page(path: Path, records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page
    from levelhead.report.page import command_line, write_page

    write_page(path, scores_page(records, name=name, command=command_line()))
    console.print(f"Wrote {escape(str(path))}", soft_wrap=True)


@lm_app.command("compare")
def compare_command(
    first: Annotated[Path, typer.Argument(help="A folder of `lm bench`, e.g. of the model before.")],
    second: Annotated[Path, typer.Argument(help="Another one, e.g. of the model after.")],
    data_root: DataRoot = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Write so many generations of both, side by side, into the second folder.")
    ] = 0,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compare two models on the benchmarks that both folders hold: scores, and paired differences, with intervals.

    Differences are drawn over the same items for both models, so they need the data (--data-root); without it the
    kept scores are shown, and differences have no interval.

    Example: levelhead lm compare runs/lm-before runs/lm-after --data-root DATA
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[first, second])
    from levelhead.lm.comparison import benchmarks_of, summarized, write_examples
    from levelhead.lm.page import language_model_page
    from levelhead.lm.runner import compare_runs
    from levelhead.report.terminal import drawn

    differences, notes = compare_runs(first, second, benchmarks_of(first), data_root)
    summary = summarized(first, second, differences, notes)
    console.print(drawn(language_model_page(summary)))
    if examples:
        file = write_examples(first, second, data_root, count=examples)
        console.print(f"Generations side by side, for this machine alone: {escape(str(file))}", soft_wrap=True)
    if json_file is not None:
        record = {
            "kind": "language models",
            "differences": [one.to_dict() for one in differences],
            "notes": notes,
            "summary": summary,
        }
        write_json(json_file, record)
    if html_file is not None:
        from levelhead.report.page import command_line, write_page

        kept = read_json(file)["examples"] if examples else []
        write_page(html_file, language_model_page(summary, examples=kept, command=command_line()))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _terms(file: Path) -> frozenset[str]:
    from levelhead.lm.stereoset.data import read_terms

    return read_terms(file)


def _refuse_trained_terms(model: str, data_root: Path | None) -> None:
    """Raise :class:`ConfigError` for a model that was trained on other terms of StereoSet."""
    from levelhead.lm.loading import place_of
    from levelhead.lm.stereoset.data import same_term
    from levelhead.lm.triplets import HELD_OUT_TERMS, stereoset_triplets, terms_held_out

    held_out = terms_held_out(place_of(model))
    if held_out and held_out & {same_term(triplet.term) for triplet in stereoset_triplets(data_root)}:
        file = Path(place_of(model)).parent / HELD_OUT_TERMS
        raise ConfigError(
            f"--model {model} was trained on StereoSet's other terms, so its StereoSet scores would tell what was "
            f"learnt by heart. Give --terms {file}, and the same for the model that it is compared with."
        )
