"""``levelhead lm bench``: a model, an endpoint, answers, or logs, scored on bias benchmarks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from levelhead.cli.finishing import write_files
from levelhead.cli.lm_samples import score_samples
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile, MismatchedWeights, Precision, Text, Texts, option
from levelhead.storage import check_outputs, read_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, listed, quoted

if TYPE_CHECKING:
    from levelhead.lm.base import Benchmark
    from levelhead.lm.bold.score import TextClassifier
    from levelhead.lm.endpoint import Endpoint
    from levelhead.lm.model import LanguageModel

console = Terminal()


KEY = "LEVELHEAD_API_KEY"
ENDPOINT, ONE, OF_LOGS = "An endpoint", "Options of one benchmark", "Logs of lm-evaluation-harness"


def bench_command(
    context: typer.Context,
    benchmarks: Annotated[
        str,
        typer.Argument(
            help="One or more, e.g. stereoset,bbq (`levelhead list benchmarks`); your own is module:Class.",
            show_default=False,
        ),
    ] = "",
    model: Annotated[Text, typer.Option(help="A language model: a folder, or a name on the Hub.")] = None,
    endpoint: Annotated[
        Text, option(ENDPOINT, "Ask a server with OpenAI's interface, e.g. http://localhost:8000/v1.")
    ] = None,
    api_model: Annotated[Text, option(ENDPOINT, "Name of the model at the endpoint.")] = None,
    api_key_env: Annotated[
        Text, option(ENDPOINT, f"Environment variable that holds the key. Default: {KEY}, if set.")
    ] = None,
    begin_with: Annotated[
        str, option(ENDPOINT, "Text to put before prompts without context, e.g. '<|endoftext|>'.")
    ] = "",
    concurrency: Annotated[int, option(ENDPOINT, "Number of parallel requests.", min=1, max=256)] = 8,
    timeout: Annotated[float, option(ENDPOINT, "Seconds that one try of a request may take.", min=1, max=3600)] = 120.0,
    predictions: Annotated[
        Path | None, typer.Option(help="Score answers of any system from this JSONL file instead.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        option(OF_LOGS, "Score this samples_*.jsonl of lm-evaluation-harness instead; several are compared."),
    ] = None,
    cluster: Annotated[str, option(OF_LOGS, "--samples: documents equal in this field are resampled together.")] = "",
    by: Annotated[str, option(OF_LOGS, "--samples: field with a document's category.")] = "",
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of answers and scores. Default: runs/lm-MODEL.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most items, the first ones: of BOLD per group, of BBQ per category, spread over templates; "
            "of counterfactual whole templates.",
        ),
    ] = None,
    terms: Annotated[
        Path | None, option(ONE, "StereoSet: file of target terms to use, one per line, e.g. held-out ones.")
    ] = None,
    choose: Annotated[
        Text, option(ONE, "BBQ: choose by mean or sum of log-likelihoods, or generate. Default: mean.")
    ] = None,
    template: Annotated[Text, option(ONE, "BBQ: prompt, with {context}, {question}, {ans0}, {ans1}, {ans2}.")] = None,
    chat: Annotated[bool, option(ONE, "BBQ: ask in the chat template.", "--chat")] = False,
    system: Annotated[Text, option(ONE, "BBQ: system prompt of --chat.")] = None,
    max_new_tokens: Annotated[
        int | None, option(ONE, "Longest free answer, in tokens. Default: BBQ 16, BOLD 20.", min=1)
    ] = None,
    templates: Annotated[Path | None, option(ONE, "counterfactual: YAML of texts with fields, or a table.")] = None,
    swap: Annotated[
        Texts,
        option(ONE, "counterfactual: a field and each group's words, e.g. 'person=the man|the woman'; repeatable."),
    ] = None,
    columns: Annotated[Text, option(ONE, "counterfactual, BBQ: columns of a table, e.g. text=T,group=G.")] = None,
    draws: Annotated[int | None, option(ONE, "counterfactual: continuations of each text. Default: 4.", min=1)] = None,
    classifier: Annotated[
        Texts, option(ONE, "BOLD, counterfactual: a text classifier, NAME=MODEL:LABEL,LABEL; repeatable.")
    ] = None,
    bbq_file: Annotated[Path | None, option(ONE, "BBQ: a table of BBQ's kind in any language, with --columns.")] = None,
    perplexity: Annotated[
        Path | None, option(ONE, "Also measure perplexity on this text, one document per line.")
    ] = None,
    prompt_noise: Annotated[
        bool,
        typer.Option(
            "--prompt-noise", help="Repeat with a fixed set of wordings and option orders; cost grows accordingly."
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Precision, typer.Option(help="Number type; auto: the model's own on a GPU.")
    ] = Precision.float32,
    allow_mismatched_weights: MismatchedWeights = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Score a language model on bias benchmarks, with 95% intervals.

    Every answer is stored, so the same command resumes, also after kill -9. A score near its ideal on one benchmark
    does not show that a model is free of bias.

    Example: levelhead lm bench stereoset,crows-pairs,bbq,bold --model MODEL --data-root DATA --out runs/lm-before
    """
    _bench(SimpleNamespace(**locals()))


def _bench(asked: SimpleNamespace) -> None:
    """Measure what was requested: the options of :func:`bench_command` by name."""
    from levelhead.lm.base import model_name

    names = [name for name in dict.fromkeys(part.strip() for part in asked.benchmarks.split(",")) if name]
    asked.name = model_name(asked.model) if asked.model else Path(str(asked.api_model)).name
    asked.folder = asked.out or Path("runs") / f"lm-{asked.name}"
    check_outputs(
        {"--json": asked.json_file, "--html": asked.html_file},
        folders={"--out": asked.folder if asked.model or asked.endpoint else asked.out},
        inputs=[
            asked.predictions, asked.terms, asked.perplexity, asked.templates, asked.bbq_file, *(asked.samples or ()),
        ],
        runs=[asked.model],
    )  # fmt: skip
    if asked.samples:
        sources = names or asked.model or asked.predictions or asked.out or asked.endpoint
        if sources or _given_beside(asked.context, LOGS):
            raise ConfigError("--samples goes with --cluster, --by, --json and --html alone: repeat it for each log.")
        score_samples(asked.samples, asked.cluster, asked.by, asked.json_file, asked.html_file, console)
        return
    _refuse_sources(asked)
    if asked.max_new_tokens and not ({"bold", "counterfactual"} & {*names} or asked.choose == "generate"):
        raise ConfigError("--max-new-tokens is for free answers: add --choose generate, or leave it out.")
    if asked.perplexity is not None and asked.predictions is None and "perplexity" not in names:
        names.append("perplexity")
    options = _options(asked, names)
    chosen = _chosen(names, options)
    if asked.predictions is not None:
        _score_predictions(asked, chosen)
        return
    for benchmark in chosen:
        benchmark.read(asked.data_root)  # mistakes first, before a large model is loaded
        _asked_as(benchmark, asked)
    if asked.endpoint is not None:
        reached = _reached(asked)
        _check(asked, chosen, reached)
        _announce(asked, chosen, reached)
        _run(asked, chosen, reached)
        return
    if "stereoset" in names:
        _refuse_trained_terms(str(asked.model), asked.data_root, options["stereoset"].get("terms"))
    loaded = _loaded(asked, chosen)
    _check(asked, chosen, loaded)
    if asked.prompt_noise:
        _announce(asked, chosen)
    _run(asked, chosen, loaded)


def _asked_as(benchmark: Benchmark, asked: SimpleNamespace) -> list[Benchmark]:
    """Return the benchmark in each wording that it will be asked in."""
    from levelhead.lm.prompts import prompts_of

    return [prompt.benchmark for prompt in prompts_of(benchmark)] if asked.prompt_noise else [benchmark]


def _check(asked: SimpleNamespace, chosen: Sequence[Benchmark], model: LanguageModel | Endpoint) -> None:
    """Raise :class:`ConfigError` for what this model cannot be asked, in any wording, before any item is."""
    for benchmark in chosen:
        for one in _asked_as(benchmark, asked):
            one.check(cast("LanguageModel", model))  # an endpoint answers the same calls


def _refuse_sources(asked: SimpleNamespace) -> None:
    """Raise :class:`ConfigError` unless there is one thing to score, and no option of another."""
    if asked.cluster or asked.by:
        raise ConfigError("--cluster and --by are options of --samples: give a samples_*.jsonl.")
    if sum(source is not None for source in (asked.model, asked.predictions, asked.endpoint)) != 1:
        raise ConfigError(
            "Give one of --model (a language model), --endpoint (a server), --predictions (answers), --samples (logs)."
        )
    if (asked.endpoint is None) != (asked.api_model is None):
        raise ConfigError("--endpoint and --api-model go together: the address of a server, and a model's name there.")
    given = _given_beside(asked.context, ())
    for source, there, takes in (
        ("--endpoint", asked.endpoint, SERVED),
        ("--model", asked.model, LOADED),
        ("--model and --endpoint", asked.model or asked.endpoint, ASKED),
    ):
        if there is None and (unused := [one for one in given if one in takes]):
            raise ConfigError(f"{listed(unused)} would do nothing: an option of {source} alone. Leave it out.")


def _given_beside(context: typer.Context, known: Sequence[str]) -> list[str]:
    """Return the options of the command line, as they are typed, that are not among ``known``."""
    typed = [
        one
        for one in context.command.params
        if one.name not in known and getattr(context.get_parameter_source(str(one.name)), "name", "") == "COMMANDLINE"
    ]
    return [max(one.opts, key=len) for one in typed]


def _loaded(asked: SimpleNamespace, chosen: Sequence[Benchmark]) -> LanguageModel:
    """Load the model, and warn where one that was trained on dialogues will not be asked in its template."""
    from levelhead.lm.model import LanguageModel
    from levelhead.lm.runner import UNASKED_CHAT

    loaded = LanguageModel.load(
        str(asked.model), asked.device, dtype=asked.precision.value,
        allow_mismatched_weights=asked.allow_mismatched_weights,
    )  # fmt: skip
    if loaded.has_chat_template and not all(getattr(benchmark, "chat", True) for benchmark in chosen):
        console.print(f"Warning: {UNASKED_CHAT}", soft_wrap=True)
    return loaded


LOGS = ("samples", "cluster", "by", "json_file", "html_file")
SERVED = ("--api-key-env", "--begin-with", "--concurrency", "--timeout")
LOADED = ("--device", "--precision", "--allow-mismatched-weights")
ASKED = ("--prompt-noise", "--choose", "--chat", "--system", "--max-new-tokens")
"""Options of one source of answers; the last are of those that are asked."""
SHARED = {
    "columns": ("counterfactual", "bbq"),
    "classifiers": ("bold", "counterfactual"),
    "max_new_tokens": ("bbq", "bold", "counterfactual"),
}
"""Options of several benchmarks, and of which."""


def _options(asked: SimpleNamespace, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each benchmark, with its part of those that several have."""
    from levelhead.lm.stereoset.data import read_terms

    bbq = ("choose", "template", "system")
    terms = None if asked.terms is None else read_terms(asked.terms)
    every: dict[str, dict[str, Any]] = {
        "stereoset": {"terms": terms},
        "bbq": {name: getattr(asked, name) for name in bbq} | {"chat": asked.chat or None, "file": asked.bbq_file},
        "bold": {},
        "counterfactual": {"templates": asked.templates, "swap": tuple(asked.swap or ()) or None, "draws": asked.draws},
        "perplexity": {"file": asked.perplexity},
    }
    options = {name: {key: one for key, one in some.items() if one is not None} for name, some in every.items()}
    given = {"columns": asked.columns, "classifiers": _classifiers(asked.classifier or ())}
    for name, value in (given | {"max_new_tokens": asked.max_new_tokens}).items():
        takers = [taker for taker in SHARED[name] if taker in names]
        if value and not takers:
            verb = {"classifiers": "classifier"}.get(name, name.replace("_", "-"))
            raise ConfigError(f"--{verb} is for {listed(SHARED[name])}, and none of these is asked.")
        for taker in takers if value else ():
            options[taker][name] = value
    return options


def _classifiers(texts: Sequence[str]) -> tuple[TextClassifier, ...]:
    from levelhead.lm.bold.score import TextClassifier

    found = []
    for text in texts:
        name, equals, rest = text.partition("=")
        model, colon, labels = rest.rpartition(":")
        names = tuple(label.strip() for label in labels.split(",") if label.strip())
        if not (equals and colon and model and names and name.isidentifier()):
            raise ConfigError(
                f"--classifier {quoted(text)} must be NAME=MODEL:LABEL,LABEL, e.g. toxicity=FOLDER:toxic."
            )
        found.append(TextClassifier(name, model, names))
    return tuple(found)


def _chosen(names: list[str], options: dict[str, dict[str, Any]]) -> list[Benchmark]:
    """Return the benchmarks of these names, or raise :class:`ConfigError` for options that belong to none of them."""
    from levelhead.lm.benchmarks import make_benchmark

    for name, given in options.items():
        if given and name not in names:
            raise ConfigError(f"An option of {name} is given, and {name} is not among the benchmarks: add it.")
    chosen = [make_benchmark(name, options.get(name)) for name in names]
    called = [benchmark.name for benchmark in chosen]
    if len(set(called)) < len(called):
        raise ConfigError(f"Benchmark names must be unique, {listed(called)}: run each into its own --out.")
    if not chosen:
        raise ConfigError("Name a benchmark, e.g. `levelhead lm bench bbq --model MODEL`.")
    return chosen


def _score_predictions(asked: SimpleNamespace, chosen: Sequence[Benchmark]) -> None:
    from levelhead.lm.benchmarks import recorded_class
    from levelhead.lm.runner import score_predictions, scores_to_dict

    if len(chosen) > 1 or asked.out is not None:
        raise ConfigError("--predictions scores one benchmark, and writes no folder: use --json, not --out.")
    benchmark, name = chosen[0], asked.predictions.name
    scores, count = score_predictions(benchmark, asked.predictions, asked.data_root, limit=asked.limit)
    record = scores_to_dict(scores) | recorded_class(benchmark) | {"items": count, "limit": asked.limit}
    _show([record], name)
    _write(asked, {"kind": "scores", **record, "predictions": name}, [record], name)


def _reached(asked: SimpleNamespace) -> Endpoint:
    """Return the endpoint; its key is read from the environment."""
    from levelhead.lm.endpoint import Endpoint

    variable = asked.api_key_env
    key = os.environ.get(variable or KEY, "")
    if variable is not None and not key:
        raise ConfigError(
            f"--api-key-env {quoted(variable)}: no such variable is set: export it, without the key here."
        )
    reached = Endpoint(
        asked.endpoint, str(asked.api_model), key=key, begin_with=asked.begin_with,
        concurrency=asked.concurrency, timeout=asked.timeout,
    )  # fmt: skip
    if key and reached.unencrypted:
        console.print(f"Warning: the key travels unencrypted to {reached.place}: use https.", soft_wrap=True)
    return reached


def _announce(asked: SimpleNamespace, chosen: Sequence[Benchmark], reached: Endpoint | None = None) -> None:
    """Say what will be asked and what it will cost, and check that an endpoint gives what is needed."""
    from levelhead.lm.endpoint import CHAT_SCORES
    from levelhead.lm.prompts import prompts_of
    from levelhead.lm.tally import tally_of

    if reached and any(getattr(one, "chat", False) and getattr(one, "choose", "") != "generate" for one in chosen):
        raise ConfigError(CHAT_SCORES)
    once = count = tally_of(chosen, asked.data_root, asked.limit)
    times = ""
    if asked.prompt_noise:
        prompts = {one.name: prompts_of(one) for one in chosen}
        every = [prompt.benchmark for some in prompts.values() for prompt in some]
        count = tally_of(every, asked.data_root, asked.limit)
        for name, some in prompts.items():
            console.print(f"Prompt noise: {name} is asked with {len(some)} prompts.", soft_wrap=True)
        if once.characters:
            times = f", {count.characters / once.characters:.1f} times as many as one prompt"
    console.print(f"At most {count}{times}. Kept answers are not asked again.", soft_wrap=True)
    if reached is not None and count.scored:
        reached.probe()


def _run(asked: SimpleNamespace, chosen: Sequence[Benchmark], model: LanguageModel | Endpoint) -> None:
    """Ask, score, print, and write what is requested."""
    from levelhead.lm.prompts import prompt_noise, prompts_of
    from levelhead.lm.runner import run_benchmark, scores_file

    root, folder, limit = asked.data_root, asked.folder, asked.limit
    try:
        for benchmark in chosen:
            run_benchmark(benchmark, model, root, folder, limit=limit, console=console)
            if asked.prompt_noise:  # ask in the other wordings, and sum up
                prompts = prompts_of(benchmark, folder)
                for number, prompt in enumerate(prompts[1:], start=2):
                    about = f"{benchmark.name}: prompt {number} of {len(prompts)}, {prompt.wording}."
                    console.print(about, soft_wrap=True)
                    run_benchmark(prompt.benchmark, model, root, prompt.folder, limit=limit, console=console)
                prompt_noise(benchmark, folder, root, limit)
            _show([read_json(scores_file(folder, benchmark.name))], asked.name)
    except KeyboardInterrupt:
        console.print("Stopped. The same command resumes from there.")
        raise typer.Exit(130) from None
    records = [read_json(scores_file(folder, one.name)) for one in chosen]
    whole = {"kind": "scores", "model": model.fingerprint(), "limit": limit}
    _write(asked, whole | {"benchmarks": [_scores(one) for one in records]}, records, asked.name)
    console.print(f"Next: levelhead lm compare {escape(str(folder))} OTHER_FOLDER", soft_wrap=True)


def _scores(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the JSON of all benchmarks holds of the scores of one."""
    kept = ("benchmark", "class", "model", "items", "limit", "overall", "parts", "units", "notes", "tests", "usage")
    return {key: record[key] for key in (*kept, "prompt_noise") if key in record}


def _show(records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page
    from levelhead.report.terminal import drawn

    console.print(drawn(scores_page(records, name=name)))


def _write(asked: SimpleNamespace, record: dict[str, Any], records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page

    write_files(asked.json_file, record, asked.html_file, lambda: scores_page(records, name=name))
    if asked.html_file is not None:
        console.print(f"Wrote {escape(str(asked.html_file))}", soft_wrap=True)


def _refuse_trained_terms(model: str, data_root: Path | None, terms: frozenset[str] | None) -> None:
    """Raise :class:`ConfigError` for a model trained on other terms of StereoSet; warn of ``terms`` it may know."""
    from levelhead.lm.loading import place_of
    from levelhead.lm.stereoset.data import same_term
    from levelhead.lm.triplets import (
        HELD_OUT_TERMS,
        known_held_out,
        may_have_seen_all,
        stereoset_triplets,
        terms_held_out,
    )

    if terms is not None and may_have_seen_all(place_of(model)):
        said = f"Warning: --model was trained by KLAAD without {HELD_OUT_TERMS}, so it may have seen all of --terms"
        console.print(f"{said}: then its scores measure memorisation.", soft_wrap=True)
    held_out = (terms_held_out if terms is None else known_held_out)(place_of(model))
    if held_out and held_out & {same_term(triplet.term) for triplet in stereoset_triplets(data_root)}:
        if terms is not None:
            if trained := set(map(same_term, terms)) - held_out:
                said = f"Warning: --model was trained on {len(trained)} of the {len(terms)} terms of --terms"
                console.print(f"{said}: their scores measure memorisation.", soft_wrap=True)
            return
        file = Path(place_of(model)).resolve().parent / HELD_OUT_TERMS
        raise ConfigError(
            f"--model {model} was trained on StereoSet's other terms, so its StereoSet scores would measure "
            f"memorisation. Give --terms {file}, also for the model compared with it."
        )
