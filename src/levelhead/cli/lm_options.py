"""The options of ``levelhead lm bench``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

KEY = "LEVELHEAD_API_KEY"
AT_ENDPOINT, OF_ONE, OF_LOGS = "An endpoint", "Options of one benchmark", "Logs of lm-evaluation-harness"


class Precision(StrEnum):
    """The number types that a model can be run in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class DeviceMap(StrEnum):
    """How layers are spread over GPUs."""

    auto = "auto"


Benchmarks = Annotated[
    str,
    typer.Argument(
        help="One or more, e.g. stereoset,bbq (`levelhead list benchmarks`); your own is module:Class.",
        show_default=False,
    ),
]
Model = Annotated[str | None, typer.Option(help="A language model: a folder, or a name on the Hub.")]
Endpoint = Annotated[
    str | None,
    typer.Option(
        help="Ask a server with OpenAI's interface, e.g. http://localhost:8000/v1.", rich_help_panel=AT_ENDPOINT
    ),
]
ApiModel = Annotated[str | None, typer.Option(help="Name of the model at the endpoint.", rich_help_panel=AT_ENDPOINT)]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(help=f"Environment variable that holds the key. Default: {KEY}, if set.", rich_help_panel=AT_ENDPOINT),
]
BeginWith = Annotated[
    str,
    typer.Option(help="Text to put before prompts without context, e.g. '<|endoftext|>'.", rich_help_panel=AT_ENDPOINT),
]
Concurrency = Annotated[
    int, typer.Option(min=1, max=256, help="Number of parallel requests.", rich_help_panel=AT_ENDPOINT)
]
RequestsPerMinute = Annotated[int | None, typer.Option(min=1, help="Rate limit.", rich_help_panel=AT_ENDPOINT)]
Timeout = Annotated[
    float, typer.Option(min=1, max=3600, help="Seconds to wait for an answer.", rich_help_panel=AT_ENDPOINT)
]
Price = Annotated[
    str | None,
    typer.Option(help="Prices of a million prompt and completion tokens, e.g. 0.15,0.60.", rich_help_panel=AT_ENDPOINT),
]
Predictions = Annotated[Path | None, typer.Option(help="Score answers of any system from this JSONL file instead.")]
Samples = Annotated[
    list[Path] | None,
    typer.Option(
        help="Score this samples_*.jsonl of lm-evaluation-harness instead; several are compared.",
        rich_help_panel=OF_LOGS,
    ),
]
Cluster = Annotated[
    str, typer.Option(help="--samples: documents equal in this field are resampled together.", rich_help_panel=OF_LOGS)
]
By = Annotated[str, typer.Option(help="--samples: field with a document's category.", rich_help_panel=OF_LOGS)]
Out = Annotated[Path | None, typer.Option(help="Folder of answers and scores. Default: runs/lm-MODEL.")]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1, help="Most items, the first ones: of BOLD per group, of BBQ per category, spread over templates."
    ),
]
Terms = Annotated[
    Path | None,
    typer.Option(
        help="StereoSet: file of target terms to use, one per line, e.g. held-out ones.", rich_help_panel=OF_ONE
    ),
]
Normalise = Annotated[
    str | None,
    typer.Option(help="StereoSet: mean log-likelihood per token, or sum. Default: mean.", rich_help_panel=OF_ONE),
]
Choose = Annotated[
    str | None,
    typer.Option(
        help="BBQ: choose by mean or sum of log-likelihoods, or generate. Default: mean.", rich_help_panel=OF_ONE
    ),
]
Template = Annotated[
    str | None,
    typer.Option(help="BBQ: prompt, with {context}, {question}, {ans0}, {ans1}, {ans2}.", rich_help_panel=OF_ONE),
]
Chat = Annotated[bool, typer.Option("--chat", help="BBQ: ask in the chat template.", rich_help_panel=OF_ONE)]
System = Annotated[str | None, typer.Option(help="BBQ: system prompt of --chat.", rich_help_panel=OF_ONE)]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Longest free answer, in tokens. Default: BBQ 16, BOLD 20.", rich_help_panel=OF_ONE),
]
PerTemplate = Annotated[
    int | None,
    typer.Option(min=1, help="BBQ: most items per template, condition and polarity.", rich_help_panel=OF_ONE),
]
BoldPerGroup = Annotated[int | None, typer.Option(min=1, help="BOLD: most prompts per group.", rich_help_panel=OF_ONE)]
Templates = Annotated[
    Path | None,
    typer.Option(help="counterfactual: YAML of texts with fields, or a table.", rich_help_panel=OF_ONE),
]
Swap = Annotated[
    list[str] | None,
    typer.Option(
        help="counterfactual: a field and each group's words, e.g. 'person=the man|the woman'; repeatable.",
        rich_help_panel=OF_ONE,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="counterfactual, BBQ: columns of a table, e.g. text=T,group=G.", rich_help_panel=OF_ONE),
]
Draws = Annotated[
    int | None,
    typer.Option(min=1, help="counterfactual: continuations of each text. Default: 4.", rich_help_panel=OF_ONE),
]
Classifier = Annotated[
    list[str] | None,
    typer.Option(
        help="BOLD, counterfactual: a text classifier, NAME=MODEL:LABEL,LABEL; repeatable.", rich_help_panel=OF_ONE
    ),
]
BbqFile = Annotated[
    Path | None,
    typer.Option(help="BBQ: a table of BBQ's kind in any language, with --columns.", rich_help_panel=OF_ONE),
]
Perplexity = Annotated[
    Path | None,
    typer.Option(help="Also measure perplexity on this text, one document per line.", rich_help_panel=OF_ONE),
]
PromptNoise = Annotated[
    bool,
    typer.Option(
        "--prompt-noise", help="Repeat with a fixed set of wordings and option orders; cost grows accordingly."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Spread = Annotated[DeviceMap | None, typer.Option(help="auto: spread the layers over all GPUs.")]
NumberType = Annotated[Precision, typer.Option(help="Number type; auto: the model's own on a GPU.")]
