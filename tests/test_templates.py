"""The templates of CONTRIBUTING.md, each taken from the page as it stands, run by the command that stands below it."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import threading
import tomllib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.modeling_outputs import SequenceClassifierOutput

import levelhead as lh
from command_line import run
from levelhead import Batch
from levelhead.auditing.parts import PARTS
from levelhead.bench.grid import Cell
from levelhead.data import DATASETS
from levelhead.lm import BENCHMARKS
from levelhead.methods import METHODS
from levelhead.metrics import METRICS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from words import word_tokenizer

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
SMALL = [
    *("--set", "model.hidden_size=16", "--set", "model.layers=2", "--set", "model.heads=2"),
    *("--set", "train.epochs=1", "--set", "train.batch_size=16", "--set", "train.threads=1"),
]
SMALL_PORTRAITS = [
    *("--set", "data.train_size=64", "--set", "data.validation_size=32", "--set", "data.test_size=80"),
    *("--seeds", "0"),
]


def command_after(name: str) -> list[str]:
    """Return the words of the command in the block that follows the code of a template."""
    found = re.search(rf"# {name}\n.*?```\n.*?```\n(.*?)\n```", PAGE, flags=re.DOTALL)
    assert found is not None
    return shlex.split(found[1])[1:]


@pytest.fixture
def here(tmp_path: Path, folder_of_its_own: None, own_modules: None) -> Path:
    for name, code in FILES.items():
        Path(name).write_text(code, encoding="utf-8")
    return tmp_path


def test_there_is_a_template_of_each() -> None:
    assert list(FILES) == ["focal.py", "lamps.py", "make_lamps.py", "pairs.py", "fpr_gap.py", "rank.py"]
    for code in FILES.values():
        assert len(code.splitlines()) < 50


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the runs of a comparison here, because starting other processes takes seconds each."""

    one_at_a_time = threading.Lock()

    def train(launcher: object, cell: Cell) -> None:
        with one_at_a_time:  # processes have an accelerator each; threads would share a half-made one
            train_run(cell.experiment, cell.folder)
            evaluate_run(cell.folder)

    monkeypatch.setattr("levelhead.bench.grid.LocalProcesses.__call__", train)


def test_the_method(here: Path, in_this_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command_after("focal.py"), *SMALL, *SMALL_PORTRAITS) == 0
    printed = capsys.readouterr().out
    assert "[3/3]" in printed
    assert "focal:Focal" in printed
    assert len(list(here.glob("runs/focal/*/seed-0/evaluation-test.json"))) == 3


def test_its_loss_is_the_papers(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    from focal import FocalLoss  # type: ignore[import-not-found]

    class Given(nn.Module):
        def forward(self, logits: torch.Tensor) -> SequenceClassifierOutput:
            return SequenceClassifierOutput(logits=logits)

    # The right classes have probabilities 0.9 and 0.25.
    logits = torch.tensor([[0.9, 0.1], [0.75, 0.25]]).log()
    batch = Batch({"logits": logits}, torch.tensor([0, 1]), torch.arange(2), torch.ones(2))
    loss, _ = FocalLoss(Given(), 2.0)(batch)
    assert loss.item() == pytest.approx((0.01 * -np.log(0.9) + 0.5625 * -np.log(0.25)) / 2, rel=1e-5)


def test_the_data_set(here: Path, in_this_process: None) -> None:
    exec(re.sub(r"\b(2000|500)\b", "80", FILES["make_lamps.py"]))
    assert run(*command_after("make_lamps.py"), *SMALL) == 0
    found = list(here.glob("runs/lamps/*/seed-*/evaluation-test.json"))
    assert len(found) == 6
    evaluation = read_json(found[0])
    assert evaluation["run"] | {"data": "lamps:Lamps", "attribute": "room"} == evaluation["run"]


def test_the_metric(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {("no", "no", "a"): 80, ("no", "yes", "a"): 20, ("no", "no", "b"): 50, ("no", "yes", "b"): 50}
    rows |= {("yes", "yes", "a"): 40, ("yes", "no", "b"): 10, ("yes", "yes", "b"): 30}
    lines = [",".join(row) for row, count in rows.items() for _ in range(count)]
    (here / "predictions.csv").write_text("label,prediction,group\n" + "\n".join(lines) + "\n", encoding="utf-8")
    words = command_after("fpr_gap.py")
    monkeypatch.setattr(sys, "argv", words)
    with patch.dict(METRICS):
        runpy.run_path(words[0], run_name="__main__")
    assert re.search(r"Predictive equality gap +.*30\.0", capsys.readouterr().out)


def test_the_audit_question(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Places of ten scores in their order: those of a are 1 to 5, those of b 6 to 10.
    lines = [f"{row % 2},{0.05 + row / 20},{'ab'[row >= 10]}" for row in range(20)]
    (here / "predictions.csv").write_text("label,score,group\n" + "\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(PARTS, "_registered", {})
    (script,) = re.findall(r"# rank\.py\n.*?```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(script, {})
    printed = capsys.readouterr().out
    assert "By group, the scores of a stand lowest." in printed
    import rank  # type: ignore[import-not-found]

    PARTS.register(rank.Rank)
    columns = [line.split(",") for line in lines]
    label, score, group = ([row[at] for row in columns] for at in range(3))
    result = lh.audit(label, scores=np.array(score, float), sensitive_features={"group": group}, parts=["rank"])
    assert result.parts["rank"].places["group"]["b"].value == pytest.approx(np.mean(np.arange(11, 21)) / 20)
    assert ">place</th>" in result.to_html()
    found = result.to_dict()
    assert found["parts"]["rank"]["places"]["group"]["a"]["value"] == pytest.approx(np.mean(np.arange(1, 11)) / 20)
    (here / "found.json").write_text(json.dumps(found), encoding="utf-8")
    monkeypatch.setattr(PARTS, "_registered", {})  # another process, which does not run the part's code
    assert run("report", "found.json", "--html", "again.html") == 0
    assert ">place</th>" in (here / "again.html").read_text(encoding="utf-8")
    frame = result.to_frame()
    assert frame.loc[frame["figure"] == "place", "group"].tolist() == ["a", "b"]
    assert "the scores of a stand lowest" in result._repr_html_()
    assert "0.275" in result.text(all=True)


def test_the_entry_points_name_the_templates() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    groups = tomllib.loads(text)["project"]["entry-points"]
    for group, file in (
        ("levelhead.methods", "focal.py"),
        ("levelhead.datasets", "lamps.py"),
        ("levelhead.benchmarks", "pairs.py"),
        ("levelhead.parts", "rank.py"),
    ):
        ((name, value),) = groups[group].items()
        assert f"class {value.partition(':')[2]}(" in FILES[file]
        assert name == Path(file).stem
    assert {METHODS.group, DATASETS.group, BENCHMARKS.group, PARTS.group} == set(groups)


def test_the_benchmark_of_language_models(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "data").mkdir()
    on, off = "the lamp is on", "the lamp is off"
    # Whichever of the two is likelier, it comes first in a quarter of the lines or in three quarters.
    (here / "data" / "pairs.tsv").write_text(f"{on}\t{off}\n" * 3 + f"{off}\t{on}\n" * 9)
    tokenizer = word_tokenizer(on.split() + off.split())
    tokenizer.save_pretrained(here / "MODEL")
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(here / "MODEL")
    assert run(*command_after("pairs.py")) == 0
    assert re.search(r"MODEL: pairs: prefers first 0\.[27]50", capsys.readouterr().out)
    assert read_json(here / "runs" / "pairs" / "scores-pairs.json")["items"] == 12
    assert len((here / "runs" / "pairs" / "answers-pairs.jsonl").read_text().splitlines()) == 13
    assert run("lm", "compare", "runs/pairs", "runs/pairs", "--data-root", "data", "--json", "same.json") == 0
    paired = read_json(here / "same.json")["pairs"][0]["difference"]
    assert (paired["value"], paired["high"]) == (0, pytest.approx(1 - 0.025 ** (1 / 12)))
    assert run("report", "runs/pairs", "--html", "page.html") == 0
