"""Debiased models under LoRA: they train, and their adapter carries statistics and projector."""

import json

import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import LABELS, Rows, fit, make, named

import levelhead as lh
from levelhead.attention.aligning import debiased_attention
from levelhead.attention.capture import capture
from levelhead.types import ConfigError

peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Could not find a config file"),  # PEFT up to 0.20, of a base without a name
]

# What is trained and saved whole, beside the low-rank matrices: new layers, projector and running statistics.
WHOLE = {
    "attach": ["classifier", "score", "alignment_head", "debias"],
    "append": ["block", "classifier", "alignment_head"],
}
CASES = [("bert", "attach"), ("vit", "attach"), ("llama", "attach"), ("bert", "append"), ("vit", "append")]


def wrap(family, kind):
    """A debiased base and the same with LoRA on queries and values of every layer of the original model."""
    torch.manual_seed(1)
    base = lh.append_encoder(family.encoder(), 3, freeze=False) if kind == "append" else make(kind, family)
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


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    """A family, and the kind of its debiased model."""
    return named(request.param[0]), request.param[1]


def test_train_save_and_load(case, tmp_path):
    family, kind = case
    base, config = wrap(family, kind)
    base.save_pretrained(tmp_path / "base")
    plain = lh.describe(base)
    model = peft.get_peft_model(base, config)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    losses = fit(model, (family.batch(number % 2) for number in range(12)))
    adapters = [p for name, p in model.named_parameters() if "lora_B" in name]
    assert adapters
    assert all(p.grad.abs().sum() > 0 for p in adapters)
    assert all(p.grad.abs().sum() > 0 for p in model.alignment_head.parameters() if p.requires_grad)
    assert sum(losses[-4:]) < sum(losses[:4])
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    found = lh.describe(model)  # counts the copies that run
    assert (found.batches, found.adapters) == (12, ("default (LORA)",))
    assert "adapters     default (LORA), of PEFT" in str(found)
    assert (found.made_by, found.debias, found.added) == (plain.made_by, plain.debias, plain.added)
    assert found.trainable < found.parameters

    whole = model(**family.batch(), labels=LABELS)
    model(**family.batch())
    torch.testing.assert_close(whole.loss, F.cross_entropy(whole.logits, LABELS) + lh.alignment(model, LABELS))

    model.eval().save_pretrained(tmp_path / "adapter")
    expected = model(**family.batch()).logits
    assert peft.PeftConfig.from_pretrained(tmp_path / "adapter").base_model_name_or_path == str(tmp_path / "base")
    by_peft = peft.PeftModel.from_pretrained(lh.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    assert torch.equal(by_peft(**family.batch()).logits, expected)
    loaded = lh.from_pretrained(tmp_path / "adapter")
    assert isinstance(loaded, peft.PeftModel)
    assert torch.equal(loaded(**family.batch()).logits, expected)
    assert updates(loaded) == 14
    # Without levelhead, nobody serves it without its debiased attention by accident.
    if kind == "attach" and not family.image:
        with pytest.raises(ValueError, match="levelhead-"):
            peft.AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "adapter")
        with pytest.raises(ValueError, match="levelhead-"):
            transformers.pipeline("text-classification", model=str(tmp_path / "adapter"))

    # Merged, it is an ordinary debiased model again.
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(**family.batch()).logits, expected)
    merged.save_pretrained(tmp_path / "merged")
    again = lh.from_pretrained(tmp_path / "merged")
    assert torch.equal(again(**family.batch()).logits, merged(**family.batch()).logits)

    # Moved: the base lies beside the adapter's files no more.
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="gives no configuration"):
        lh.from_pretrained(tmp_path / "adapter")


def test_calibration_and_what_is_read_are_those_of_the_plain_model(case):
    family, kind = case
    batches = [family.batch(1), family.batch(2)]
    plain, config = wrap(family, kind)
    lh.calibrate(plain, batches)
    model = lh.calibrate(peft.get_peft_model(wrap(family, kind)[0], config), batches)
    assert updates(model) == 2
    torch.testing.assert_close(model.eval()(**family.batch()).logits, plain.eval()(**family.batch()).logits)
    (expected,) = capture(plain, Rows(family.batch()), 6, "cpu")
    (seen,) = capture(model, Rows(family.batch()), 6, "cpu")
    for part in ("query", "key", "debiased_query", "debiased_key", "readout"):
        torch.testing.assert_close(getattr(seen, part), getattr(expected, part))
    assert not torch.equal(seen.query, seen.debiased_query)


@pytest.mark.parametrize("target", ["all-linear", "projections"])
def test_lora_config_saves_what_is_needed(case, target, tmp_path):
    family, kind = case
    base, _ = wrap(family, kind)
    base.save_pretrained(tmp_path / "base")
    options = {} if target == "all-linear" else {"target_modules": list(family.projections[::2])}
    model = peft.get_peft_model(base, lh.lora_config(base, r=2, **options))
    adapted = [path for path, part in model.named_modules() if hasattr(part, "lora_A")]
    assert adapted
    assert not [path for path in adapted if "modules_to_save" in path or "original_module" in path]
    fit(model, (family.batch(0), family.batch(1)))
    assert all(p.grad is not None for p in model.alignment_head.parameters() if p.requires_grad)
    model.eval().save_pretrained(tmp_path / "adapter")
    loaded = lh.from_pretrained(tmp_path / "adapter")
    assert updates(loaded) == 2
    assert torch.equal(loaded(**family.batch()).logits, model(**family.batch()).logits)


def without_statistics(folder):
    """A base, and an adapter on it that was saved without the running statistics."""
    base, config = wrap(named("bert"), "attach")
    base.save_pretrained(folder / "base")
    config.target_modules, config.modules_to_save = r".*\.self\.query", ["classifier", "alignment_head", "debias"]
    model = peft.get_peft_model(base, config).train()
    model(**named("bert").batch(), labels=LABELS)
    model.save_pretrained(folder / "adapter")
    file = folder / "adapter" / "adapter_model.safetensors"
    save_file({name: x for name, x in load_file(file).items() if ".debias." not in name}, file)
    settings = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    settings["modules_to_save"].remove("debias")
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(settings))


NAIVE = [
    ("attach", {"target_modules": "all-linear"}),
    ("attach", {"target_modules": "all-linear", "task_type": "SEQ_CLS"}),
    ("attach", {"target_modules": ["dense"], "modules_to_save": ["classifier"]}),
    ("append", {"target_modules": ["dense"], "modules_to_save": ["classifier"]}),
    ("append", {"target_modules": "all-linear", "task_type": "SEQ_CLS"}),
]


@pytest.mark.parametrize(("kind", "options"), NAIVE)
def test_an_adapter_that_would_lose_the_statistics_does_not_train(kind, options):
    base, _ = wrap(named("bert"), kind)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, **options))
    with pytest.raises(ConfigError, match=r"levelhead\.lora_config\(model\)"):
        model.train()(**named("bert").batch(), labels=LABELS)


def test_an_adapter_without_statistics_does_not_load(tmp_path):
    without_statistics(tmp_path)
    with pytest.raises(ConfigError, match="saved without the running statistics"):
        lh.from_pretrained(tmp_path / "adapter")


def test_lora_config_keeps_every_new_part_and_no_old_one():
    two = transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    )
    assert set(lh.lora_config(lh.attach(two)).modules_to_save) == {
        "pre_classifier", "classifier", "alignment_head", "debias"
    }  # fmt: skip
    plain = lh.attach(named("bert").classify(), lh.DebiasConfig(normalize=False))
    assert "debias" not in lh.lora_config(plain).modules_to_save
    more = lh.lora_config(plain, r=4, target_modules=["dense"])
    assert (more.r, more.target_modules) == (4, {"dense"})
    t5 = transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=50, d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1)
    )
    model = lh.append_encoder(t5, 3, freeze=False, layers=2)
    wrapped = peft.get_peft_model(model, lh.lora_config(model))  # its own layers are called block, too
    assert not [name for name, p in wrapped.named_parameters() if p.requires_grad and "encoder.block" in name
                and "lora_" not in name]  # fmt: skip
    assert wrapped.below[0].attention.query.weight.requires_grad
    wrapped.train()(input_ids=torch.randint(1, 50, (6, 5)), labels=LABELS).loss.backward()


def changed(folder, **settings):
    """Save an adapter, and change what its file says."""
    base, config = wrap(named("bert"), "attach")
    base.save_pretrained(folder / "base")
    peft.get_peft_model(base, config).save_pretrained(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def test_an_adapter_whose_base_cannot_be_says_so(tmp_path):
    for name, base in (("a", str(tmp_path / "a")), ("b", str(tmp_path / "c")), ("c", str(tmp_path / "b")), ("d", None)):
        changed(tmp_path / name, base_model_name_or_path=base)
    for name, reason in (("a", "stands on it in turn"), ("c", "stands on it in turn"), ("d", "names no base model")):
        with pytest.raises(ConfigError, match=reason):
            lh.from_pretrained(tmp_path / name)


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
