"""``levelhead lm bench``: a model, an endpoint, answers, or logs, scored on bias benchmarks."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from levelhead.cli.finishing import write_files
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile, MismatchedWeights, Precision, Text, Texts, option
from levelhead.storage import check_outputs, read_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, listed, quoted

if TYPE_CHECKING:
    from levelhead.lm.base import Benchmark
    from levelhead.lm.bold.score import TextClassifier
    from levelhead.lm.endpoint import Endpoint
    from levelhead.lm.model import LanguageModel
    from levelhead.lm.runner import Given

console = Terminal()


KEY = "LEVELHEAD_API_KEY"
ENDPOINT, ANSWERS, ONE = "An endpoint", "How the model is asked", "Options of one benchmark"


def bench_command(
    benchmarks: Annotated[
        str,
        typer.Argument(
            help="One or more, e.g. stereoset,bbq (`levelhead list benchmarks`); your own is module:Class.",
            show_default=False,
        ),
    ] = "",
    model: Annotated[Text, typer.Option(help="A language model: a folder, or a name on the Hub.")] = None,
    endpoint: Annotated[Text, typer.Option(help="Ask a server with OpenAI's interface instead: its address.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Score answers of any system from this file instead.")
    ] = None,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of answers and scores. Default: runs/lm-MODEL.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most items of each category of a benchmark, the same ones each time.")
    ] = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    chat: Annotated[bool, option(ANSWERS, "BBQ: ask in the chat template.", "--chat")] = False,
    choose: Annotated[
        Text, option(ANSWERS, "BBQ: choose by mean or sum of log-likelihoods, or generate. Default: mean.")
    ] = None,
    template: Annotated[
        Text, option(ANSWERS, "BBQ: prompt, with {context}, {question}, {ans0}, {ans1}, {ans2}; \\n is a new line.")
    ] = None,
    system: Annotated[Text, option(ANSWERS, "BBQ: system prompt of --chat.")] = None,
    thought: Annotated[
        Texts, option(ANSWERS, "Marks of the model's thoughts beside the known ones: 'BEGIN,END'; repeatable.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, option(ANSWERS, "Longest free answer, in tokens. Default: BBQ 16, BOLD 20.", min=1)
    ] = None,
    prompt_noise: Annotated[
        bool,
        option(ANSWERS, "Repeat with a fixed set of wordings and option orders; cost grows.", "--prompt-noise"),
    ] = False,
    device: Annotated[str, option(ANSWERS, "auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Precision, option(ANSWERS, "Number type; auto: the model's own on a GPU.")
    ] = Precision.float32,
    allow_mismatched_weights: MismatchedWeights = False,
    terms: Annotated[
        Path | None, option(ONE, "StereoSet: file of target terms to use, one per line, e.g. held-out ones.")
    ] = None,
    file: Annotated[
        Path | None,
        option(ONE, "counterfactual: a YAML. perplexity: a text."),
    ] = None,
    swap: Annotated[
        Texts,
        option(ONE, "counterfactual: a field and each group's words, e.g. 'person=the man|the woman'; repeatable."),
    ] = None,
    classifier: Annotated[
        Texts, option(ONE, "BOLD, counterfactual: a text classifier, NAME=MODEL:LABEL,LABEL; repeatable.")
    ] = None,
    api_model: Annotated[Text, option(ENDPOINT, "Name of the model at the endpoint.")] = None,
    begin_with: Annotated[
        str, option(ENDPOINT, "Text to put before prompts without context, e.g. '<|endoftext|>'.")
    ] = "",
    concurrency: Annotated[int, option(ENDPOINT, "Number of parallel requests.", min=1, max=256)] = 8,
    timeout: Annotated[float, option(ENDPOINT, "Seconds that one try of a request may take.", min=1, max=3600)] = 120.0,
) -> None:
    """Score a language model on bias benchmarks, with 95% intervals.

    Every answer is stored, so the same command resumes, also after kill -9. A score near its ideal on one benchmark
    does not show that a model is free of bias. An endpoint's key is read from LEVELHEAD_API_KEY.

    Example: levelhead lm bench stereoset,crows-pairs,bbq,bold --model MODEL --data-root DATA --out runs/lm-before
    """
    _bench(SimpleNamespace(**locals()))


OF = {
    **dict.fromkeys(("begin_with", "concurrency", "timeout"), ("endpoint",)),
    **dict.fromkeys(("device", "precision", "allow_mismatched_weights"), ("model",)),
    **dict.fromkeys(("prompt_noise", "choose", "chat", "system", "max_new_tokens"), ("model", "endpoint")),
}
"""Options that act on some sources of answers alone, and on which."""
TAKERS = {
    "terms": ("stereoset",),
    **dict.fromkeys(("choose", "template", "chat", "system"), ("bbq", "mbbq")),
    "file": ("counterfactual", "perplexity"),
    "swap": ("counterfactual",),
    "classifiers": ("bold", "counterfactual"),
    "thoughts": ("bbq", "mbbq", "bold", "counterfactual"),
    "max_new_tokens": ("bbq", "mbbq", "bold", "counterfactual"),
}
"""Options of benchmarks, and of which."""


def _bench(asked: SimpleNamespace) -> None:
    """Measure what was requested: the options of :func:`bench_command` by name."""
    from levelhead.lm.base import model_name
    from levelhead.lm.benchmarks import make_benchmark
    from levelhead.lm.prompts import prompts_of
    from levelhead.lm.runner import Given

    names = [name for name in dict.fromkeys(part.strip() for part in asked.benchmarks.split(",")) if name]
    asked.folder = asked.out or Path("runs") / f"lm-{model_name(asked.model or asked.api_model or 'given')}"
    check_outputs(
        {"--json": asked.json_file, "--html": asked.html_file},
        folders={"--out": asked.folder if asked.model or asked.endpoint else asked.out},
        inputs=[asked.predictions, asked.terms, asked.file],
        runs=[asked.model],
    )
    _refuse_sources(asked)
    if asked.max_new_tokens and not ({"bold", "counterfactual"} & {*names} or asked.choose == "generate"):
        raise ConfigError("--max-new-tokens is for free answers: add --choose generate, or leave it out.")
    options = _options(asked, names)
    chosen = [make_benchmark(name, options[name]) for name in names]
    if not chosen:
        raise ConfigError("Name a benchmark, e.g. `levelhead lm bench bbq --model MODEL`.")
    if asked.predictions is not None:
        if len(chosen) > 1:
            raise ConfigError("--predictions holds answers to one benchmark: name that one.")
        given = Given(asked.predictions)
        with tempfile.TemporaryDirectory() as folder:  # it goes unless it is named
            asked.folder = asked.out or Path(folder)
            _run(asked, chosen, given)
        return
    for benchmark in chosen:
        benchmark.read(asked.data_root)  # mistakes first, before a large model is loaded
    every = chosen
    if asked.prompt_noise:
        every = [prompt.benchmark for benchmark in chosen for prompt in prompts_of(benchmark)]
    if asked.model and "stereoset" in names:
        _refuse_trained_terms(str(asked.model), asked.data_root, options["stereoset"].get("terms"))
    model: LanguageModel | Endpoint = _loaded(asked, chosen) if asked.model else _reached(asked, chosen)
    for one in every:
        one.check(cast("LanguageModel", model))  # an endpoint answers the same calls
    if asked.endpoint or asked.prompt_noise:
        _announce(asked, every, model)
    _run(asked, chosen, model)


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_sources(asked: SimpleNamespace) -> None:
    """Raise :class:`ConfigError` unless there is one thing to score, and no option of another."""
    if sum(source is not None for source in (asked.model, asked.predictions, asked.endpoint)) != 1:
        raise ConfigError("Give one of --model (a language model), --endpoint (a server), --predictions (answers).")
    if (asked.endpoint is None) != (asked.api_model is None):
        raise ConfigError("--endpoint and --api-model go together: the address of a server, and a model's name there.")
    usual = inspect.signature(bench_command).parameters
    for name, sources in OF.items():
        if getattr(asked, name) != usual[name].default and not any(getattr(asked, source) for source in sources):
            alone = " and ".join(map(_typed, sources))
            raise ConfigError(f"{_typed(name)} would do nothing: an option of {alone} alone. Leave it out.")


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


def _options(asked: SimpleNamespace, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each benchmark, with its part of those that several have."""
    from levelhead.lm.stereoset.data import read_terms

    given = {name: getattr(asked, name, None) for name in TAKERS} | {
        "swap": tuple(asked.swap or ()),
        "classifiers": _classifiers(asked.classifier or ()),
        "thoughts": tuple(asked.thought or ()),
    }
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, value in given.items():
        takers = [taker for taker in TAKERS[name] if taker in names]
        if value and (not takers or (name == "file" and len(takers) > 1)):
            typed = name.removesuffix("s") if name in ("classifiers", "thoughts") else name
            what = "none of these is asked" if not takers else "two of these are asked: run one at a time"
            raise ConfigError(f"{_typed(typed)} is for {listed(TAKERS[name])}, and {what}.")
        for taker in takers if value else ():
            found[taker][name] = read_terms(value) if name == "terms" else value
    return found


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


def _reached(asked: SimpleNamespace, chosen: Sequence[Benchmark]) -> Endpoint:
    """Return the endpoint; its key is read from the environment."""
    from levelhead.lm.endpoint import CHAT_SCORES, Endpoint

    if any(getattr(one, "chat", False) and getattr(one, "choose", "") != "generate" for one in chosen):
        raise ConfigError(CHAT_SCORES)
    key = os.environ.get(KEY, "")
    reached = Endpoint(
        asked.endpoint, str(asked.api_model), key=key, begin_with=asked.begin_with,
        concurrency=asked.concurrency, timeout=asked.timeout,
    )  # fmt: skip
    if key and reached.unencrypted:
        console.print(f"Warning: the key travels unencrypted to {reached.place}: use https.", soft_wrap=True)
    return reached


def _announce(asked: SimpleNamespace, every: Sequence[Benchmark], model: LanguageModel | Endpoint) -> None:
    """Say what will be asked, in each wording, and check that an endpoint gives what is needed."""
    from levelhead.lm.tally import tally_of

    count = tally_of(every, asked.data_root, asked.limit)
    prompts = f", in {len(every)} prompts" if asked.prompt_noise else ""
    console.print(f"At most {count}{prompts}. Kept answers are not asked again.", soft_wrap=True)
    if asked.endpoint and count.scored:
        cast("Endpoint", model).probe()


def _run(asked: SimpleNamespace, chosen: Sequence[Benchmark], model: LanguageModel | Endpoint | Given) -> None:
    """Ask, score, print, and write what is requested."""
    from levelhead.lm.page import bench_page
    from levelhead.lm.prompts import prompt_noise, prompts_of
    from levelhead.lm.runner import run_benchmark, scores_file
    from levelhead.report.terminal import drawn

    root, folder, limit = asked.data_root, asked.folder, asked.limit
    records = []
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
            records.append(read_json(scores_file(folder, benchmark.name)))
            console.print(drawn(bench_page(records[-1]), everything=False))
    except KeyboardInterrupt:
        console.print("Stopped. The same command resumes from there.")
        raise typer.Exit(130) from None
    whole = {"kind": "scores", "model": model.fingerprint(), "limit": limit, "benchmarks": records}
    if asked.endpoint:
        used = cast("Endpoint", model).used
        console.print(f"Asked this time: {used}", soft_wrap=True)
        whole["usage"] = asdict(used)
    write_files(asked.json_file, whole, asked.html_file, lambda: bench_page(whole))
    if asked.predictions is None or asked.out is not None:
        console.print(f"Next: levelhead lm compare {escape(str(folder))} OTHER_FOLDER", soft_wrap=True)


def _refuse_trained_terms(model: str, data_root: Path | None, terms: frozenset[str] | None) -> None:
    """Raise :class:`ConfigError` for a model trained on other terms of StereoSet; warn of ``terms`` it may know."""
    from levelhead.lm.loading import place_of
    from levelhead.lm.stereoset.data import same_term
    from levelhead.lm.triplets import HELD_OUT_TERMS, stereoset_triplets, terms_held_out

    held_out = terms_held_out(place_of(model))
    if held_out is None or (
        held_out and not held_out & {same_term(triplet.term) for triplet in stereoset_triplets(data_root)}
    ):
        return  # it was trained on nothing, or on triplets of its own
    if terms is None:
        file = Path(place_of(model)).resolve().parent / HELD_OUT_TERMS
        raise ConfigError(
            f"--model {model} was trained by KLAAD, so its StereoSet scores would measure memorisation. Give --terms "
            f"{file if held_out else 'a file of terms that it has not seen'}, also for the model compared with it."
        )
    if seen := set(map(same_term, terms)) - held_out:
        said = f"Warning: --model may have been trained on {len(seen)} of the {len(terms)} terms of --terms"
        console.print(f"{said}: their scores measure memorisation.", soft_wrap=True)
