"""Debiased models under LoRA: they train, and their adapter carries statistics and projector."""

import json
import time

import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from family_table import LABELS, build, named
from safetensors.torch import load_file, save_file
from tiny_models import Rows

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


def without_statistics(folder, *, calibrated):
    """A base, and an adapter on it that was saved without the running statistics."""
    base, config = wrap(named("bert"), "attach")
    if calibrated:
        lh.calibrate(base, [named("bert").batch(5)])
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
    model = peft.get_peft_model(lh.calibrate(base, [named("bert").batch(5)]), peft.LoraConfig(r=2, **options))
    with pytest.warns(UserWarning, match="has no running statistics") as caught:
        [model.eval()(**named("bert").batch()) for _ in range(2)]
    assert len(caught) == 1
    with pytest.raises(ConfigError, match=r"levelhead\.lora_config\(model\)"):
        model.train()(**named("bert").batch(), labels=LABELS)


@pytest.mark.parametrize("kind", ["attach", "append"])
def test_other_kinds_of_adapters_do_not_train_without_statistics(kind):
    base, _ = wrap(named("bert"), kind)
    ia3 = peft.IA3Config(target_modules=["intermediate.dense"], feedforward_modules=["intermediate.dense"])
    with pytest.raises(ConfigError, match=r"levelhead\.lora_config"):
        peft.get_peft_model(base, ia3).train()(**named("bert").batch(), labels=LABELS)
    base, _ = wrap(named("bert"), kind)
    base.add_adapter(peft.LoraConfig(r=2, target_modules=["dense"]))  # of transformers, without a PeftModel
    with pytest.raises(ConfigError, match=r"levelhead\.lora_config"):
        base.train()(**named("bert").batch(), labels=LABELS)


@pytest.mark.parametrize("calibrated", [False, True])
def test_an_adapter_without_statistics_does_not_load(calibrated, tmp_path):
    without_statistics(tmp_path, calibrated=calibrated)
    with pytest.raises(ConfigError, match="saved without the running statistics"):
        lh.from_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(lh.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    match = "has no running statistics" if calibrated else "has no running statistics|before any training step"
    with pytest.warns(UserWarning, match=match):
        loaded(**named("bert").batch())
    lh.from_pretrained(tmp_path / "adapter", allow_mismatched_weights=True)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("target", ["all-linear", "projections"])
def test_lora_config_saves_what_is_needed(name, kind, target, tmp_path):
    family = named(name)
    base, _ = wrap(family, kind)
    base.save_pretrained(tmp_path / "base")
    options = {} if target == "all-linear" else {"target_modules": list(family.projections[::2])}
    model = peft.get_peft_model(base, lh.lora_config(base, r=2, **options)).train()
    adapted = [path for path, part in model.named_modules() if hasattr(part, "lora_A")]
    assert adapted
    assert not [path for path in adapted if "modules_to_save" in path or "original_module" in path]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    for step in range(4):
        optimizer.zero_grad()
        model(**family.batch(step % 2), labels=LABELS).loss.backward()
        optimizer.step()
    assert all(p.grad is not None for p in model.alignment_head.parameters() if p.requires_grad)
    model.eval().save_pretrained(tmp_path / "adapter")
    loaded = lh.from_pretrained(tmp_path / "adapter")
    assert updates(loaded) == 4
    assert torch.equal(loaded(**family.batch()).logits, model(**family.batch()).logits)


def test_lora_config_keeps_every_new_part_and_no_old_one():
    two = transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    )
    assert set(lh.lora_config(lh.attach(two)).modules_to_save) == {
        "pre_classifier", "classifier", "alignment_head", "debias"
    }  # fmt: skip
    plain = lh.attach(named("bert").classify(), lh.DebiasConfig(normalize=False))
    assert "debias" not in lh.lora_config(plain).modules_to_save
    more = lh.lora_config(plain, modules_to_save=["pooler"], r=4, target_modules=["dense"])
    assert (more.r, more.target_modules) == (4, {"dense"})
    assert {"pooler", "classifier", "alignment_head"} == set(more.modules_to_save)
    t5 = transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=50, d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1)
    )
    model = lh.append_encoder(t5, 3, freeze=False, layers=2)
    wrapped = peft.get_peft_model(model, lh.lora_config(model))  # its own layers are called block, too
    assert not [name for name, p in wrapped.named_parameters() if p.requires_grad and "encoder.block" in name
                and "lora_" not in name]  # fmt: skip
    assert wrapped.below[0].attention.query.weight.requires_grad
    wrapped.train()(input_ids=torch.randint(1, 50, (6, 5)), labels=LABELS).loss.backward()


def test_lora_config_refuses_what_it_cannot_help():
    with pytest.raises(ConfigError, match="freeze=False"):
        lh.lora_config(lh.append_encoder(named("bert").encoder(), 3))
    with pytest.raises(ConfigError, match="got a BertModel"):
        lh.lora_config(named("bert").encoder())
    base, config = wrap(named("bert"), "attach")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'rank'"):
        lh.lora_config(base, rank=4)
    assert "pooler" in lh.lora_config(base, modules_to_save="pooler").modules_to_save
    with pytest.raises(ConfigError, match="before peft"):
        lh.lora_config(peft.get_peft_model(base, config))


def test_an_adapter_that_names_itself_as_its_base_says_so(tmp_path):
    _, config = wrap(named("bert"), "attach")
    for name, points_to in (("a", tmp_path / "a"), ("b", tmp_path / "c"), ("c", tmp_path / "b")):
        peft.get_peft_model(wrap(named("bert"), "attach")[0], config).save_pretrained(tmp_path / name)
        settings = json.loads((tmp_path / name / "adapter_config.json").read_text())
        settings["base_model_name_or_path"] = str(points_to)
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(settings))
        if name != "b":
            with pytest.raises(ConfigError, match="stands on it in turn"):
                lh.from_pretrained(tmp_path / name)


@pytest.mark.parametrize(
    "entry", ["target_modules", "exclude_modules", "rank_pattern", "alpha_pattern", "modules_to_save"]
)
def test_a_regular_expression_bomb_ends_within_seconds(entry, tmp_path, monkeypatch):
    monkeypatch.setattr("levelhead.loading.PATIENCE", 1)  # with 5 the test takes that long for each entry
    base, config = wrap(named("bert"), "attach")
    base.save_pretrained(tmp_path / "base")
    peft.get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    bomb = "(([a-z._0-9])+)+!"
    settings[entry] = {bomb: 2} if "pattern" in entry else [bomb] if entry == "modules_to_save" else bomb
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="takes more than 1 seconds"):
        lh.from_pretrained(tmp_path / "adapter")
    assert time.monotonic() - begun < 60


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
