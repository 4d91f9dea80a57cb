"""Two gloo processes on this machine against one: the same losses, weights, statistics and gradients.

All checks run in one pair of processes, because starting them costs most of the time; each test reads what one check
has saved.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from test_engine import Killed
from test_engine import make_lab as lab_of
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import BertForSequenceClassification

from kinds import KINDS as ALL_KINDS
from levelhead.attention import DebiasConfig, QueryKeyStandardizer, alignment, append_encoder, attach, detach
from levelhead.distributed import gather_rows
from levelhead.methods import METHODS, Method, Stage
from levelhead.methods.arl import ARL
from levelhead.methods.dam import DAM
from levelhead.methods.fit import fit
from levelhead.methods.jtt import JTT
from levelhead.methods.kd import KD
from levelhead.storage import load_tensors
from levelhead.training.lab import Lab
from levelhead.types import ConfigError, LevelheadError
from ranks import join_ranks, start_ranks
from tiny import bert_config, make_examples, tiny_vit, told_groups

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
]  # three interpreters import torch and transformers, on few cores one by one
PROCESSES = 2
KINDS: dict[str, Method] = {name: ALL_KINDS[name] for name in (*METHODS, "dam+cnc")}
del KINDS["broad"]  # which refuses several processes
KINDS["dam+jtt"] = DAM(base=JTT(upweight=2))
KINDS["kd"] = KD(teacher_layers=3)
KINDS["arl later"] = ARL(pretrain_steps=2)  # its adversary has no gradient at first


def make_lab(folder: Path | None, **options: Any) -> Lab:
    """An odd batch, so that the processes hold 8 and 7 rows, and evaluation batches of 7 with one row left over.

    Some labels are wrong, so that there is something to miss for a scout.
    """
    examples = make_examples(50)
    wrong = replace(examples, labels=torch.where(torch.arange(50) % 7 == 0, 1 - examples.labels, examples.labels))
    config = {"epochs": 2, "batch_size": 15, "learning_rate": 1e-3, "evaluation_batch_size": 7}
    return lab_of(folder, **{"new_model": partial(tiny_vit, dropout=0.0), "train": wrong, **config, **options})


def train(kind: str, folder: Path) -> dict[str, Any]:
    method = KINDS[kind]
    lab = make_lab(folder, **told_groups(method))
    model = fit(method, lab)
    return {
        "weights": dict(model.state_dict()),
        "logits": lab.logits(model),
        "work": torch.tensor([lab.work.forward, lab.work.backward]),
        "steps": lab.steps,
    }


def losses(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def smooth_adam() -> Any:
    """With the usual epsilon Adam turns rounding errors of gradients that are truly 0 (key biases) into steps."""
    return patch.object(torch.optim, "AdamW", partial(torch.optim.AdamW, eps=1e-3))


def check_methods(rank: int, folder: Path) -> dict[str, Any]:
    with smooth_adam():
        return {kind: train(kind, folder / kind) for kind in KINDS}


# Statistics: rows 0-4 belong to the first process, rows 5-7 to the second, and padding is uneven as well.
CUT = (slice(0, 5), slice(5, 8))
STATISTICS = ("position", "feature", "cls_feature")


def states(dtype: torch.dtype, mean: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    query, key = (torch.randn(8, heads, 6, 4, generator=generator, dtype=torch.float64) + mean for heads in (4, 2))
    valid = torch.arange(6) < torch.tensor([6, 6, 6, 6, 6, 3, 1, 4])[:, None]  # none padded in the first process
    readout = torch.tensor([0, 1, 0, 2, 0, 0, 0, 3])
    return query.to(dtype), key.to(dtype), valid, readout


def standardized(statistics: Any, dtype: torch.dtype, mean: float, rows: slice, **options: Any) -> dict[str, Any]:
    query, key, valid, readout = states(dtype, mean)
    mask: Tensor | None = valid[rows]
    if bool(valid[rows].all()):  # transformers drops a mask that hides nothing
        mask = None
    debias = QueryKeyStandardizer(
        4,
        4,
        num_key_value_heads=2,
        statistics=statistics,
        length=6 if statistics == "position" else None,
        momentum=1.0,
        **options,
    )
    inputs = [x[rows].clone().requires_grad_() for x in (query, key)]
    outputs = debias(*inputs, mask, readout[rows] if statistics == "cls_feature" else None)
    weights = [torch.sin(torch.arange(x.numel(), dtype=dtype)).view_as(x)[rows] for x in (query, key)]
    hidden = valid[rows][:, None, :, None]
    sum((weight * out * hidden).sum() for weight, out in zip(weights, outputs, strict=True)).backward()
    debias.commit()
    return {
        "outputs": [out.detach() for out in outputs],
        "gradients": [x.grad for x in inputs],
        "running": dict(debias.state_dict()),
    }


EXTRAS: list[dict[str, Any]] = [
    {},
    {"unbiased": True, "running": "std"},
    {"statistics_gradient": False},
    {"twice": True},
]
TWICE = len(EXTRAS) - 1
CASES = [
    *itertools.product(STATISTICS, (torch.float32, torch.float64), (0.0, 1000.0), range(TWICE)),
    ("feature", torch.float32, 0.0, TWICE),
]


def check_statistics(rank: int, folder: Path) -> dict[str, Any]:
    return {str(case): standardized(*case[:3], CUT[rank], **EXTRAS[case[3]]) for case in CASES}  # type: ignore[arg-type]


def tiny_bert(**debias: Any) -> Any:
    torch.manual_seed(0)
    model = BertForSequenceClassification(bert_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    return attach(model, DebiasConfig(**debias)).train()


def sentences(rows: slice) -> dict[str, Tensor]:
    """Padded to the longest of ``rows``: the first four are all of length 5, so that their mask hides nothing."""
    lengths = torch.tensor([5, 5, 5, 5, 9, 3, 7, 4])[rows]
    ids = torch.randint(1, 40, (8, 9), generator=torch.Generator().manual_seed(1))[rows, : int(lengths.max())]
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.tensor([0, 1, 0, 1, 1, 0, 1, 1])[rows]}


def appended() -> Any:
    """An appended, debiased layer on a frozen backbone."""
    return append_encoder(detach(tiny_bert()).bert, 2).train()


BARE: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointing": {},
    "reentrant": {"alpha": 0.0},  # alignment refuses reentrant checkpointing, with one process or several
    "queue": {"notebook": {"queue": 6}},
    "twice": {"notebook": {"twice": True}, "statistics": "feature"},
    "appended": {},  # which computes the readout row alone
}


SHARDED = ("plain", "appended", "checkpointing", "twice")


def bare_step(kind: str, rows: slice, wrap: Any = lambda model: model) -> dict[str, Any]:
    """Two steps as a trainer that knows nothing of levelhead takes them: local batch, local loss."""
    model = appended() if kind == "appended" else tiny_bert(**BARE[kind])
    if kind in ("checkpointing", "reentrant"):
        # Its name in transformers 5.0 is deprecated later.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": kind == "reentrant"})
    trained, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = trained(**sentences(rows)).loss
        loss.backward()
        optimizer.step()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), "gradients": gradients, "state": dict(model.state_dict())}


def check_bare(rank: int, folder: Path) -> dict[str, Any]:
    rows = (slice(0, 4), slice(4, 8))[rank]
    found = {}
    for kind in BARE:
        # A queue leaves the projector without a gradient. DDP cannot look for such through a reentrant checkpoint.
        wrap = partial(DistributedDataParallel, find_unused_parameters=kind == "queue")
        found[kind] = bare_step(kind, rows, wrap)
    return found


def check_sharded(rank: int, folder: Path) -> dict[str, Any]:
    """The same with parameters divided among the processes by FSDP's second version."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (PROCESSES,))

    def wrap(model: Any) -> Any:
        for layer in getattr(model, "bert", getattr(model, "backbone", None)).encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        return model

    rows = (slice(0, 4), slice(4, 8))[rank]
    found = {kind: bare_step(kind, rows, wrap) for kind in SHARDED}
    for one in found.values():
        for part in ("gradients", "state"):
            one[part] = {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in one[part].items()}
    return found


def check_alignment(rank: int, folder: Path) -> dict[str, Any]:
    """Own labels and weights, or those of the whole batch: the same loss; any other number is refused."""
    rows, weight = (slice(0, 5), slice(5, 8))[rank], torch.arange(8.0)
    found = {}
    for kind, part in (("own", rows), ("whole", slice(None))):
        model = tiny_bert()
        inputs = sentences(slice(None))
        labels = inputs.pop("labels")
        model(**{name: tensor[rows] for name, tensor in inputs.items()})
        found[kind] = alignment(model, labels[part], weight[part]).detach()
    model(**{name: tensor[rows] for name, tensor in inputs.items()})
    with pytest.raises(ConfigError, match=r"got 2 labels; .* holds [53] rows of a batch of 8"):
        alignment(model, labels[:2])
    return found


@dataclass(frozen=True)
class MortalMethod(Method):
    """Draws a random number in each step, and may die in the third step of its second stage."""

    summary = "a method that may die"
    base: Method
    dies: bool

    def stages(self, lab: Lab) -> Iterator[Stage]:
        for number, stage in enumerate(self.base.stages(lab)):
            lab.drawn = drawn = []  # type: ignore[attr-defined]

            def draw(*_: Any, dies: bool = self.dies and number == 1, drawn: list[float] = drawn) -> None:
                if dies and len(drawn) == 2:
                    raise Killed
                drawn.append(torch.rand(1).item())

            stage.objective.register_forward_pre_hook(draw)
            yield stage


DROPPING = partial(tiny_vit, dropout=0.2)


def check_resume(rank: int, folder: Path) -> dict[str, Any]:
    base = DAM(base=JTT(upweight=2))
    options: dict[str, Any] = {"new_model": DROPPING, "checkpoint_seconds": 0.0}
    undisturbed = make_lab(folder / "a", **options)
    first = dict(fit(MortalMethod(base, False), undisturbed).state_dict())
    with pytest.raises(Killed):
        fit(MortalMethod(base, True), make_lab(folder / "b", **options))
    distributed.barrier()
    torch.manual_seed(99 + rank)
    resumed = make_lab(folder / "b", **options)
    second = dict(fit(MortalMethod(base, False), resumed).state_dict())
    return {"first": first, "second": second, "drawn": torch.tensor(undisturbed.drawn)}  # type: ignore[attr-defined]


def check_refusals(rank: int, folder: Path) -> dict[str, Any]:
    model = tiny_bert()
    next(model.parameters())._is_flat_param = True  # as FSDP's first version marks it, which needs a GPU
    with pytest.raises(ConfigError, match=r"not been tried with FullyShardedDataParallel.*\.fully_shard"):
        model(**sentences(slice(0, 4)))
    lab = make_lab(None)
    with lab._shared(), pytest.raises(LevelheadError, match="1 rows in training, less than one for each of 2"):
        lab.new_model()(torch.zeros(1, 3, 16, 16))
    return {}


def check_ordinary_outside(rank: int, folder: Path) -> dict[str, Any]:
    """Outside the lab a network is an ordinary one: one process alone may run it."""
    model = make_lab(None).new_model().eval()
    return {"rows": len(model(torch.zeros(5, 3, 16, 16)).logits)} if rank == 0 else {}


def check_gather(rank: int, folder: Path) -> dict[str, Any]:
    """Process r holds r + 1 rows, and its loss is (r + 1) x the sum of squares of all rows."""
    rows = (torch.arange(rank + 1.0)[:, None] + 10 * rank).requires_grad_()
    whole = gather_rows(rows)
    ((rank + 1) * whole.square().sum()).backward()
    return {"whole": whole.detach(), "gradient": rows.grad}


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def work(rank: int, folder: Path) -> None:
    join_ranks(rank, PROCESSES, folder)
    for name, check in CHECKS.items():
        torch.save(check(rank, folder / name), folder / f"{name}-{rank}.pt")
        distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranks")
    start_ranks(work, PROCESSES, place)
    return place


def results(folder: Path, name: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{name}-{rank}.pt") for rank in range(PROCESSES)]


def assert_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_trains_as_one_process_does(kind: str, folder: Path, tmp_path: Path) -> None:
    first, second = (found[kind] for found in results(folder, "methods"))
    assert_equal(first["weights"], second["weights"])
    with smooth_adam():
        alone = train(kind, tmp_path)
    assert first["steps"] == alone["steps"]
    torch.testing.assert_close(first["work"], alone["work"], rtol=0, atol=0)
    # Where directions are taken out, rounding of the last layer's inputs (6e-8) moves its weights by up to
    # 2e-5 and its logits by 6e-6, and processors round differently. For bmft it may choose another weight.
    atol = 2e-4 if kind in ("identities", "few-label", "decorrelation", "bmft") else 1e-5
    torch.testing.assert_close(first["weights"], alone["weights"], rtol=0, atol=atol)
    torch.testing.assert_close(first["logits"], alone["logits"], rtol=0, atol=atol)
    rows, expected = losses(folder / "methods" / kind), losses(tmp_path)
    assert len(rows) == len(expected) > alone["steps"]
    for row, other in zip(rows, expected, strict=True):
        row.pop("seconds", None), other.pop("seconds", None)
        assert row == pytest.approx(other, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_statistics_are_those_of_the_whole_batch(case: Any, folder: Path) -> None:
    statistics, dtype, mean, extra = case
    parts = [found[str(case)] for found in results(folder, "statistics")]
    assert_equal(parts[0]["running"], parts[1]["running"])
    whole = standardized(statistics, dtype, mean, slice(None), **EXTRAS[extra])
    # The running averages are kept in float32 whatever the input.
    torch.testing.assert_close(parts[0]["running"], whole["running"], rtol=1e-5, atol=1e-6)
    if extra == TWICE:
        assert whole["running"]["query.absolute_mean"].min() > 0.5
    if dtype == torch.float32 and mean:  # float32 has no digits left for outputs and gradients
        return
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for name in ("outputs", "gradients"):
        for position in range(2):
            joined = torch.cat([part[name][position] for part in parts])
            torch.testing.assert_close(joined, whole[name][position], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("trainer", "kind"), [*(("bare", kind) for kind in BARE), *(("sharded", kind) for kind in SHARDED)]
)
def test_any_trainer_with_ddp_or_fsdp_gets_the_joint_batch(trainer: str, kind: str, folder: Path) -> None:
    parts = [found[kind] for found in results(folder, trainer)]
    whole = bare_step(kind, slice(None))
    assert_equal(parts[0]["state"], parts[1]["state"])
    assert parts[0]["gradients"].keys() == whole["gradients"].keys()
    torch.testing.assert_close((parts[0]["loss"] + parts[1]["loss"]) / 2, whole["loss"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts[0]["gradients"], whole["gradients"], rtol=1e-4, atol=1e-5)
    if (trainer, kind) == ("sharded", "plain"):
        # fully_shard hooks into its layer, which then computes all rows, and keeps their queries' statistics.
        whole["state"] |= {name: parts[0]["state"][name] for name in whole["state"] if "debias.query." in name}
    torch.testing.assert_close(parts[0]["state"], whole["state"], rtol=0, atol=1e-5)


def test_a_local_batch_alone_would_be_something_else() -> None:
    """The tests above could not fail if halves of this batch had the statistics of the whole."""
    whole, half = bare_step("plain", slice(None)), bare_step("plain", slice(0, 4))
    name = "bert.encoder.layer.1.attention.self.debias.key.mean"
    assert (whole["state"][name] - half["state"][name]).abs().max() > 1e-2


def test_alignment_takes_own_labels_or_all(folder: Path) -> None:
    model = tiny_bert()
    inputs = sentences(slice(None))
    labels = inputs.pop("labels")
    model(**inputs)
    expected = alignment(model, labels, torch.arange(8.0)).detach()
    for found in results(folder, "alignment"):
        for kind in ("own", "whole"):
            torch.testing.assert_close(found[kind], expected, rtol=1e-5, atol=1e-5)


def test_a_killed_run_resumes_with_the_dropout_of_each_process(folder: Path) -> None:
    first, second = results(folder, "resume")
    for found in (first, second):
        assert_equal(found["first"], found["second"])
    assert_equal(first["first"], second["first"])
    assert not set(first["drawn"].tolist()) & set(second["drawn"].tolist())
    tensors, metadata = load_tensors(folder / "resume" / "b" / "checkpoints" / "stage-1.safetensors")
    assert tensors["generator.cpu"].shape[0] == metadata["position"]["processes"] == PROCESSES
    a, b = ([{**row, "seconds": 0} for row in losses(folder / "resume" / name)] for name in "ab")
    assert a == b
    with pytest.raises(ConfigError, match=r"training in 2 process\(es\) and cannot be resumed in 1"):
        fit(DAM(base=JTT(upweight=2)), make_lab(folder / "resume" / "a", new_model=DROPPING))


def test_a_network_is_ordinary_outside_the_lab(folder: Path) -> None:
    assert results(folder, "ordinary_outside")[0]["rows"] == 5
    results(folder, "refusals")  # raised in the processes themselves


def test_gathering_sums_the_gradients_of_all(folder: Path) -> None:
    whole = torch.tensor([[0.0], [10.0], [11.0]])
    first, second = results(folder, "gather")
    for found in (first, second):
        torch.testing.assert_close(found["whole"], whole)
    # Losses are 1 x and 2 x the sum of squares, so rows get (1 + 2) x 2 x themselves.
    torch.testing.assert_close(torch.cat([first["gradient"], second["gradient"]]), 6 * whole)
