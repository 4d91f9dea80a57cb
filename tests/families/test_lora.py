"""Debiased models under LoRA: they train, and their adapter carries statistics and projector."""

import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from family_table import LABELS, build, named

import levelhead as lh
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.capture import capture
from levelhead.data.base import Inputs
from levelhead.types import ConfigError

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")

# What is trained and saved whole, beside the low-rank matrices: new layers, projector and running statistics.
WHOLE = {
    "attach": ["classifier", "score", "alignment_head", "debias"],
    "append": ["block", "classifier", "alignment_head"],
}
CASES = [("bert", "attach"), ("vit", "attach"), ("llama", "attach"), ("bert", "append"), ("vit", "append")]


class Rows(Inputs):
    """A batch of model inputs, addressed by row."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def batch(self, index):
        return {name: tensor[index] for name, tensor in self.tensors.items()}


def wrap(family, kind):
    """A debiased base and the same with LoRA on queries and values of every layer of the original model."""
    torch.manual_seed(1)
    base = lh.append_encoder(family.encoder(), 3, freeze=False) if kind == "append" else build(family, kind)
    query, _, value = family.projections
    below = r"backbone\." if kind == "append" else ""
    config = peft.LoraConfig(
        r=2,
        target_modules=rf"{below}.*\.({query}|{value})",
        modules_to_save=WHOLE[kind],
        task_type=None if family.image else "SEQ_CLS",
    )
    return base, config


def updates(model):
    return debiased_attention(model).debias.key.num_batches_tracked.max().item()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_train_save_and_load(name, kind, tmp_path):
    family = named(name)
    base, config = wrap(family, kind)
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, config).train()
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for step in range(12):
        output = model(**family.batch(step % 2), labels=LABELS)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        losses.append(output.loss.item())
        if step == 0:
            adapters = [p for name, p in model.named_parameters() if "lora_B" in name]
            assert adapters
            assert all(p.grad.abs().sum() > 0 for p in adapters)
            assert all(p.grad.abs().sum() > 0 for p in model.alignment_head.parameters() if p.requires_grad)
    assert sum(losses[-4:]) < sum(losses[:4])
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    assert updates(model) == 12

    whole = model(**family.batch(), labels=LABELS)
    model(**family.batch())
    torch.testing.assert_close(whole.loss, F.cross_entropy(whole.logits, LABELS) + lh.alignment(model, LABELS))

    model.eval().save_pretrained(tmp_path / "adapter")
    expected = model(**family.batch()).logits
    loaded = peft.PeftModel.from_pretrained(lh.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    assert torch.equal(loaded(**family.batch()).logits, expected)
    assert updates(loaded) == 14
    ours, theirs = model.alignment_head.state_dict(), loaded.alignment_head.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    # Merged, it is an ordinary debiased model again.
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(**family.batch()).logits, expected)
    merged.save_pretrained(tmp_path / "merged")
    assert torch.equal(
        lh.from_pretrained(tmp_path / "merged")(**family.batch()).logits, merged(**family.batch()).logits
    )


@pytest.mark.parametrize(("name", "kind"), CASES[1:4])
def test_calibrate(name, kind):
    family = named(name)
    base, config = wrap(family, kind)
    model = lh.calibrate(peft.get_peft_model(base, config), [family.batch(1), family.batch(2)])
    plain = lh.calibrate(wrap(family, kind)[0], [family.batch(1), family.batch(2)])
    assert updates(model) == 2
    torch.testing.assert_close(model.eval()(**family.batch()).logits, plain.eval()(**family.batch()).logits)


@pytest.mark.parametrize("calibrated", [False, True])
def test_forgotten_statistics_are_noticed_only_if_the_base_has_none(calibrated, tmp_path):
    family = named("bert")
    base, _ = wrap(family, "attach")
    if calibrated:
        lh.calibrate(base, [family.batch(5)])
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=2, target_modules=r".*\.self\.query", modules_to_save=["classifier", "alignment_head"])
    model = peft.get_peft_model(base, config).train()
    model(**family.batch(), labels=LABELS)
    model.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(lh.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    if calibrated:  # nothing warns: the statistics are there, but they are the base's
        assert not torch.equal(loaded(**family.batch()).logits, model.eval()(**family.batch()).logits)
        assert updates(loaded) == 1
        assert updates(model) == 2
    else:
        with pytest.warns(UserWarning, match="evaluated before any training step"):
            loaded(**family.batch())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_capture_reads_the_debiased_layer(name, kind):
    family = named(name)
    base, config = wrap(family, kind)
    lh.calibrate(base, [family.batch()])
    (expected,) = capture(base, Rows(family.batch()), 6, "cpu")
    (seen,) = capture(peft.get_peft_model(base, config), Rows(family.batch()), 6, "cpu")
    for part in ("query", "key", "debiased_query", "debiased_key", "readout"):
        torch.testing.assert_close(getattr(seen, part), getattr(expected, part))
    assert not torch.equal(seen.query, seen.debiased_query)


def test_lora_in_a_frozen_backbone_is_refused():
    family = named("bert")
    config = peft.LoraConfig(r=2, target_modules=r"backbone\..*\.query", modules_to_save=WHOLE["append"])
    model = peft.get_peft_model(lh.append_encoder(family.encoder(), 3), config)
    with pytest.raises(ConfigError, match="freeze=False"):
        model.train()


@pytest.mark.parametrize(("name", "kind"), [CASES[0], CASES[3]])
def test_describe_counts_the_copies_that_run(name, kind, tmp_path):
    family = named(name)
    base, config = wrap(family, kind)
    plain = lh.describe(base)
    model = peft.get_peft_model(base, config).train()
    model(**family.batch(), labels=LABELS)
    found = lh.describe(model)
    assert found.batches == 1
    assert found.adapters == ("default (LORA)",)
    assert "adapters     default (LORA), of PEFT" in str(found)
    assert (found.made_by, found.debias, found.added) == (plain.made_by, plain.debias, plain.added)
    assert found.trainable < found.parameters


@pytest.mark.parametrize(("name", "kind"), [CASES[0], CASES[3], CASES[4]])
def test_an_adapter_names_its_base_and_loads_through_levelhead(name, kind, tmp_path):
    family = named(name)
    base, config = wrap(family, kind)
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, config).train()
    model(**family.batch(), labels=LABELS)
    model.eval().save_pretrained(tmp_path / "adapter")
    assert peft.PeftConfig.from_pretrained(tmp_path / "adapter").base_model_name_or_path == str(tmp_path / "base")
    loaded = lh.from_pretrained(tmp_path / "adapter")
    assert isinstance(loaded, peft.PeftModel)
    assert torch.equal(loaded(**family.batch()).logits, model(**family.batch()).logits)
    # Without levelhead, nobody serves it without its debiased attention by accident.
    if kind == "attach":
        with pytest.raises(ValueError, match="levelhead-"):
            peft.AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "adapter")
        with pytest.raises(ValueError, match="levelhead-"):
            transformers.pipeline("text-classification", model=str(tmp_path / "adapter"))
    # Moved: the base lies beside the adapter's files no more.
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="gives no configuration"):
        lh.from_pretrained(tmp_path / "adapter")


def test_an_adapter_without_a_base_says_so(tmp_path):
    base, config = wrap(named("bert"), "attach")
    model = peft.get_peft_model(base, config)
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="names no base model"):
        lh.from_pretrained(tmp_path)


def test_a_text_pipeline_serves_an_adapter():
    base, config = wrap(named("bert"), "attach")
    model = peft.get_peft_model(base, config).train()
    model(**named("bert").batch(), labels=LABELS)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "a": 1, "b": 2}, unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<pad>")
    classify = transformers.pipeline("text-classification", model=model.eval(), tokenizer=tokenizer)
    (found,) = classify(["a b a"])
    expected = model(input_ids=torch.tensor([[1, 2, 1]])).logits.softmax(-1)
    assert found["score"] == pytest.approx(expected.max().item(), abs=1e-5)
