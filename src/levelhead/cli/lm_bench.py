"""``levelhead lm bench``: a model, an endpoint, answers, or logs, scored on bias benchmarks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from levelhead.cli import lm_options as ask
from levelhead.cli.lm_options import KEY
from levelhead.cli.lm_samples import score_samples
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile, MismatchedWeights
from levelhead.storage import check_outputs, read_json, write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, listed, quoted

if TYPE_CHECKING:
    from levelhead.lm.base import Benchmark
    from levelhead.lm.bold.score import TextClassifier
    from levelhead.lm.endpoint import Endpoint
    from levelhead.lm.model import LanguageModel

console = Terminal()


def bench_command(
    context: typer.Context,
    benchmarks: ask.Benchmarks = "",
    model: ask.Model = None,
    endpoint: ask.Endpoint = None,
    api_model: ask.ApiModel = None,
    api_key_env: ask.ApiKeyEnv = None,
    begin_with: ask.BeginWith = "",
    concurrency: ask.Concurrency = 8,
    requests_per_minute: ask.RequestsPerMinute = None,
    timeout: ask.Timeout = 120.0,
    price: ask.Price = None,
    predictions: ask.Predictions = None,
    samples: ask.Samples = None,
    cluster: ask.Cluster = "",
    by: ask.By = "",
    data_root: DataRoot = None,
    out: ask.Out = None,
    limit: ask.Limit = None,
    terms: ask.Terms = None,
    normalise: ask.Normalise = None,
    choose: ask.Choose = None,
    template: ask.Template = None,
    chat: ask.Chat = False,
    system: ask.System = None,
    max_new_tokens: ask.MaxNewTokens = None,
    per_template: ask.PerTemplate = None,
    bold_per_group: ask.BoldPerGroup = None,
    templates: ask.Templates = None,
    swap: ask.Swap = None,
    columns: ask.Columns = None,
    draws: ask.Draws = None,
    classifier: ask.Classifier = None,
    bbq_file: ask.BbqFile = None,
    perplexity: ask.Perplexity = None,
    prompt_noise: ask.PromptNoise = False,
    device: ask.Device = "auto",
    device_map: ask.Spread = None,
    precision: ask.NumberType = ask.Precision.float32,
    allow_mismatched_weights: MismatchedWeights = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Score a language model on bias benchmarks, with 95% intervals.

    Every answer is stored, so the same command resumes, also after kill -9. A score near its ideal on one benchmark
    does not show that a model is free of bias.

    Example: levelhead lm bench stereoset,crows-pairs,bbq,bold --model MODEL --data-root DATA --out runs/lm-before
    """
    names = [name for name in dict.fromkeys(part.strip() for part in benchmarks.split(",")) if name]
    asked = Path(str(model or api_model)).name
    folder = out or Path("runs") / f"lm-{asked}"
    check_outputs(
        {"--json": json_file, "--html": html_file},
        folders={"--out": folder if model or endpoint else out},
        inputs=[predictions, terms, perplexity, templates, bbq_file, *(samples or ())],
        runs=[model],
    )
    if samples:
        if names or model or predictions or out or endpoint or _given_beside(context, LOGS):
            raise ConfigError("--samples goes with --cluster, --by, --json and --html alone: repeat it for each log.")
        score_samples(samples, cluster, by, json_file, html_file, console)
        return
    _refuse_sources(model, predictions, endpoint, api_model, of_samples=cluster or by)
    _refuse_unused(_given_beside(context, ()), model, endpoint)
    if max_new_tokens and not ({"bold", "counterfactual"} & {*names} or choose == "generate"):
        raise ConfigError("--max-new-tokens is for free answers: add --choose generate, or leave it out.")
    options: dict[str, dict[str, Any]] = {
        "stereoset": _given(terms=None if terms is None else _terms(terms), normalise=normalise),
        "bbq": _given(choose=choose, template=template, per_template=per_template, chat=chat or None, system=system)
        | _given(file=bbq_file),
        "bold": _given(per_group=bold_per_group),
        "counterfactual": _given(templates=templates, swap=tuple(swap) if swap else None, draws=draws),
        "perplexity": _given(file=perplexity),
    }
    if perplexity is not None and predictions is None and "perplexity" not in names:
        names.append("perplexity")
    _share(options, names, columns=columns, classifiers=_classifiers(classifier or ()), max_new_tokens=max_new_tokens)
    chosen = _chosen(names, options)
    if predictions is not None:
        _score_predictions(chosen, predictions, out, data_root, limit, json_file, html_file)
        return
    for benchmark in chosen:
        benchmark.read(data_root)  # mistakes first, before a large model is loaded
    if endpoint is not None:
        reached = _reached(
            endpoint,
            str(api_model),
            api_key_env,
            begin_with=begin_with,
            prices=_prices(price),
            concurrency=concurrency,
            per_minute=requests_per_minute,
            timeout=timeout,
        )
        _announce(reached, chosen, data_root, limit, noise=prompt_noise)
        _run(reached, asked, chosen, data_root, folder, limit, json_file, html_file, noise=prompt_noise)
        return
    if "stereoset" in names:
        _refuse_trained_terms(str(model), data_root, options["stereoset"].get("terms"))
    spread = None if device_map is None else "auto"
    loaded = _loaded(str(model), device, precision.value, spread, allow_mismatched_weights, chosen)
    if prompt_noise:
        _announce(None, chosen, data_root, limit, noise=True)
    _run(loaded, asked, chosen, data_root, folder, limit, json_file, html_file, noise=prompt_noise)


def _refuse_sources(model: Any, predictions: Any, endpoint: Any, api_model: Any, *, of_samples: str) -> None:
    """Raise :class:`ConfigError` unless one source is given: model, answers, or an endpoint with its model's name."""
    if of_samples:
        raise ConfigError("--cluster and --by are options of --samples: give a samples_*.jsonl.")
    if sum(source is not None for source in (model, predictions, endpoint)) != 1:
        raise ConfigError(
            "Give one of --model (a language model), --endpoint (a server), --predictions (answers), --samples (logs)."
        )
    if (endpoint is None) != (api_model is None):
        raise ConfigError("--endpoint and --api-model go together: the address of a server, and a model's name there.")


def _given_beside(context: typer.Context, known: Sequence[str]) -> list[str]:
    """Return the options of the command line, as they are typed, that are not among ``known``."""
    typed = [
        one
        for one in context.command.params
        if one.name not in known and getattr(context.get_parameter_source(str(one.name)), "name", "") == "COMMANDLINE"
    ]
    return [max(one.opts, key=len) for one in typed]


def _refuse_unused(given: Sequence[str], model: str | None, endpoint: str | None) -> None:
    """Raise :class:`ConfigError` for an option that the source of answers would not heed."""
    for source, there, takes in (
        ("--endpoint", endpoint, SERVED),
        ("--model", model, LOADED),
        ("--model and --endpoint", model or endpoint, ("--prompt-noise",)),
    ):
        if there is None and (unused := [option for option in given if option in takes]):
            raise ConfigError(f"{listed(unused)} would do nothing: an option of {source} alone. Leave it out.")


def _loaded(
    model: str, device: str, dtype: Any, device_map: Any, mismatched: bool, chosen: Sequence[Benchmark]
) -> LanguageModel:
    """Load the model, and warn where one that was trained on dialogues will not be asked in its template."""
    from levelhead.lm.model import LanguageModel
    from levelhead.lm.runner import UNASKED_CHAT

    loaded = LanguageModel.load(model, device, dtype=dtype, device_map=device_map, allow_mismatched_weights=mismatched)
    if loaded.has_chat_template and not all(getattr(benchmark, "chat", True) for benchmark in chosen):
        console.print(f"Warning: {UNASKED_CHAT}", soft_wrap=True)
    return loaded


LOGS = ("samples", "cluster", "by", "json_file", "html_file")
SERVED = ("--api-key-env", "--begin-with", "--concurrency", "--requests-per-minute", "--timeout", "--price")
LOADED = ("--device", "--device-map", "--precision", "--allow-mismatched-weights")
"""Options of one source of answers."""
SHARED = {
    "columns": ("counterfactual", "bbq"),
    "classifiers": ("bold", "counterfactual"),
    "max_new_tokens": ("bbq", "bold", "counterfactual"),
}
"""Options of several benchmarks, and of which."""


def _share(options: dict[str, dict[str, Any]], names: Sequence[str], **given: Any) -> None:
    """Give each benchmark its part of the options that several have."""
    for option, value in given.items():
        if not value:
            continue
        takers = [name for name in SHARED[option] if name in names]
        if not takers:
            verb = {"classifiers": "classifier"}.get(option, option.replace("_", "-"))
            raise ConfigError(f"--{verb} is for {listed(SHARED[option])}, and none of these is asked.")
        for name in takers:
            options[name][option] = value


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


def _score_predictions(
    chosen: Sequence[Benchmark],
    predictions: Path,
    out: Path | None,
    data_root: Path | None,
    limit: int | None,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    from levelhead.lm.benchmarks import recorded_class
    from levelhead.lm.runner import score_predictions, scores_to_dict

    if len(chosen) > 1 or out is not None:
        raise ConfigError("--predictions scores one benchmark, and writes no folder: use --json, not --out.")
    benchmark = chosen[0]
    scores, count = score_predictions(benchmark, predictions, data_root, limit=limit)
    record = scores_to_dict(scores) | recorded_class(benchmark) | {"items": count, "limit": limit}
    _show([record], predictions.name)
    if json_file is not None:
        write_json(json_file, {"kind": "scores", **record, "predictions": predictions.name})
    if html_file is not None:
        _write_page(html_file, [record], predictions.name)


def _reached(url: str, name: str, variable: str | None, **options: Any) -> Endpoint:
    """Return the endpoint; its key is read from the environment."""
    from levelhead.lm.endpoint import Endpoint

    key = os.environ.get(variable or KEY, "")
    if variable is not None and not key:
        raise ConfigError(
            f"--api-key-env {quoted(variable)}: no such variable is set: export it, without the key here."
        )
    reached = Endpoint(url, name, key=key, **options)
    if key and reached.unencrypted:
        console.print(f"Warning: the key travels unencrypted to {reached.place}: use https.", soft_wrap=True)
    return reached


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        prompt, completion = map(float, text.split(","))
    except ValueError:
        prompt = completion = -1.0
    if not (0 <= prompt < 1e9 and 0 <= completion < 1e9):
        raise ConfigError(f"--price {quoted(text)} must be two prices of a million tokens, e.g. 0.15,0.60.")
    return prompt, completion


def _announce(
    reached: Endpoint | None, chosen: Sequence[Benchmark], data_root: Path | None, limit: int | None, *, noise: bool
) -> None:
    """Say what will be asked and what it will cost, and check that an endpoint gives what is needed."""
    from levelhead.lm.endpoint import CHAT_SCORES
    from levelhead.lm.prompts import prompts_of, said
    from levelhead.lm.tally import tally_of

    if reached and any(getattr(one, "chat", False) and getattr(one, "choose", "") != "generate" for one in chosen):
        raise ConfigError(CHAT_SCORES)
    once = count = tally_of(chosen, data_root, limit)
    if noise:
        prompts = {one.name: prompts_of(one) for one in chosen}
        count = tally_of([prompt.benchmark for some in prompts.values() for prompt in some], data_root, limit)
        for name, some in prompts.items():
            console.print(f"Prompt noise: {name} is asked with {said(some)}.", soft_wrap=True)
    times = (
        f", {count.characters / once.characters:.1f} times as many as one prompt" if noise and once.characters else ""
    )
    cost = "" if reached is None or reached.prices is None else f"; cost about {count.cost(reached.prices):,.4f}"
    console.print(f"At most {count}{times}{cost}. Kept answers are not asked again.", soft_wrap=True)
    if reached is not None and count.scored:
        reached.probe()


def _run(
    asked: LanguageModel | Endpoint,
    name: str,
    chosen: Sequence[Benchmark],
    data_root: Path | None,
    folder: Path,
    limit: int | None,
    json_file: Path | None,
    html_file: Path | None,
    *,
    noise: bool,
) -> None:
    """Ask, score, print, and write what is requested."""
    from levelhead.lm.runner import run_benchmark, scores_file

    try:
        for benchmark in chosen:
            run_benchmark(benchmark, asked, data_root, folder, limit=limit, console=console)
            if noise:
                _run_prompts(asked, benchmark, data_root, folder, limit)
            _show([read_json(scores_file(folder, benchmark.name))], name)
    except KeyboardInterrupt:
        console.print("Stopped. The same command resumes from there.")
        raise typer.Exit(130) from None
    records = [read_json(scores_file(folder, one.name)) for one in chosen]
    if json_file is not None:
        write_json(
            json_file,
            {
                "kind": "scores",
                "model": asked.fingerprint(),
                "limit": limit,
                "benchmarks": [_scores(one) for one in records],
            },
        )
    if html_file is not None:
        _write_page(html_file, records, name)
    console.print(f"Next: levelhead lm compare {escape(str(folder))} OTHER_FOLDER", soft_wrap=True)


def _run_prompts(
    asked: LanguageModel | Endpoint, benchmark: Benchmark, data_root: Path | None, folder: Path, limit: int | None
) -> None:
    """Ask in the other wordings, and sum up."""
    from levelhead.lm.prompts import prompt_noise, prompts_of
    from levelhead.lm.runner import run_benchmark

    prompts = prompts_of(benchmark, folder)
    for number, prompt in enumerate(prompts[1:], start=2):
        console.print(f"{benchmark.name}: prompt {number} of {len(prompts)}, {prompt.wording}.", soft_wrap=True)
        run_benchmark(prompt.benchmark, asked, data_root, prompt.folder, limit=limit, console=console)
    prompt_noise(benchmark, folder, data_root, limit)


def _scores(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the JSON of all benchmarks holds of the scores of one."""
    kept = ("benchmark", "class", "model", "items", "limit", "overall", "parts", "units", "notes", "tests", "usage")
    return {key: record[key] for key in (*kept, "prompt_noise") if key in record}


def _show(records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page
    from levelhead.report.terminal import drawn

    console.print(drawn(scores_page(records, name=name)))


def _write_page(path: Path, records: list[dict[str, Any]], name: str) -> None:
    from levelhead.lm.page import scores_page
    from levelhead.report.page import command_line, write_page

    write_page(path, scores_page(records, name=name, command=command_line()))
    console.print(f"Wrote {escape(str(path))}", soft_wrap=True)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _terms(file: Path) -> frozenset[str]:
    from levelhead.lm.stereoset.data import read_terms

    return read_terms(file)


def _refuse_trained_terms(model: str, data_root: Path | None, terms: frozenset[str] | None) -> None:
    """Raise :class:`ConfigError` for a model trained on other terms of StereoSet; warn of trained ``terms``."""
    from levelhead.lm.loading import place_of
    from levelhead.lm.stereoset.data import same_term
    from levelhead.lm.triplets import HELD_OUT_TERMS, known_held_out, stereoset_triplets, terms_held_out

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
