import copy

import pytest
import torch
import torch.nn.functional as F
from tiny_models import backbone, batch
from torch.utils.checkpoint import checkpoint

from levelhead.attention import DebiasConfig, DebiasedBlock, alignment, append_encoder, calibrate
from levelhead.attention.aligning import debiased_attention
from levelhead.types import ConfigError, LevelheadError


def test_backbone_weights_are_kept(family):
    base = backbone(family)
    before = copy.deepcopy(base.state_dict())
    model = append_encoder(base, 3)
    for name, tensor in before.items():
        assert torch.equal(model.backbone.state_dict()[name], tensor)


def test_frozen_backbone_is_always_in_evaluation_mode_and_untouched(family, labels):
    # Dropout in a frozen backbone would be seen at once.
    model = append_encoder(backbone(family, hidden_dropout_prob=0.5), 3).train()
    assert model.training
    assert not any(module.training for module in model.backbone.modules())
    first, second = (model(**batch(family), labels=labels) for _ in range(2))
    assert torch.equal(first.logits, second.logits)
    first.loss.backward()
    assert all(p.grad is None and not p.requires_grad for p in model.backbone.parameters())
    trained = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {"block", "classifier", "alignment_head"}
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_loss_and_statistics(family, labels):
    model = append_encoder(backbone(family), 3, debias=DebiasConfig(alpha=2.0)).train()
    whole = model(**batch(family), labels=labels)
    model(**batch(family))
    torch.testing.assert_close(whole.loss, F.cross_entropy(whole.logits, labels) + 2 * alignment(model, labels))
    assert debiased_attention(model).debias.key.num_batches_tracked.max() == 2
    model.eval()
    out = model(**batch(family), labels=labels)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))
    loss, logits = model(**batch(family), labels=labels, return_dict=False)
    assert torch.equal(loss, out.loss)
    assert torch.equal(logits, out.logits)


def test_plain_twin_has_the_same_size(family, labels):
    debiased = append_encoder(backbone(family), 3, debias=DebiasConfig(alpha=0))
    plain = append_encoder(backbone(family), 3, debias=None).train()
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in debiased.parameters())
    out = plain(**batch(family), labels=labels)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))
    out.loss.backward()
    with pytest.raises(ConfigError, match="not debiased"):
        alignment(plain, labels)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_block_matches_the_equations_written_out(norm):
    torch.manual_seed(0)
    debias = DebiasConfig(statistics="position", readout="first", alpha=0)
    block = DebiasedBlock(8, 2, debias, length=5, norm=norm, activation="relu", intermediate_size=12)
    hidden = torch.randn(6, 5, 8)
    attention = block.attention

    def attend(x):
        query, key, value = (
            layer(x).view(6, 5, 2, 4).transpose(1, 2) for layer in (attention.query, attention.key, attention.value)
        )
        query, key = (((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()).abs() for x in (query, key))
        mixed = (query @ key.transpose(-1, -2) / 2).softmax(-1) @ value
        return attention.output(mixed.transpose(1, 2).flatten(2))

    wide, narrow = block.feed_forward[0], block.feed_forward[2]
    if norm == "pre":
        expected = hidden + attend(block.norm_attention(hidden))
        expected = expected + narrow(wide(block.norm_feed_forward(expected)).relu())
    else:
        expected = block.norm_attention(hidden + attend(hidden))
        expected = block.norm_feed_forward(expected + narrow(wide(expected).relu()))
    torch.testing.assert_close(block(hidden), expected)
    assert wide.out_features == 12


def test_plain_block_is_the_encoder_layer_of_torch():
    torch.manual_seed(0)
    block = DebiasedBlock(8, 2)
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 8, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    ours = block.attention
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        for mine, their in (
            (ours.output, theirs.self_attn.out_proj),
            (block.norm_attention, theirs.norm1),
            (block.norm_feed_forward, theirs.norm2),
            (block.feed_forward[0], theirs.linear1),
            (block.feed_forward[2], theirs.linear2),
        ):
            their.load_state_dict(mine.state_dict())
    hidden = torch.randn(3, 5, 8)
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
    result, expected = block(hidden, valid), theirs(hidden, src_key_padding_mask=~valid)
    torch.testing.assert_close(result[valid], expected[valid])


class OwnNetwork(torch.nn.Module):
    """Two debiased layers in a network that is not from transformers."""

    def __init__(self, checkpointing=False, **options):
        super().__init__()
        debias = DebiasConfig(**{"statistics": "cls_feature", "readout": "first", **options})
        self.blocks = torch.nn.ModuleList(DebiasedBlock(8, 2, debias, length=5) for _ in range(2))
        self.head = torch.nn.Linear(8, 2)
        self.checkpointing = checkpointing

    def forward(self, hidden, valid=None):
        for block in self.blocks:
            hidden = (
                checkpoint(block, hidden, valid, use_reentrant=False) if self.checkpointing else block(hidden, valid)
            )
        return self.head(hidden[:, 0])


HIDDEN, TARGETS = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(3)), torch.tensor([0, 1, 0, 1, 0, 1])


def whole_loss(network):
    logits = network(HIDDEN)
    return F.cross_entropy(logits, TARGETS) + sum(alignment(block, TARGETS) for block in network.blocks)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_block_in_a_network_of_ones_own_aligns_and_commits(checkpointing):
    torch.manual_seed(0)
    network = OwnNetwork(checkpointing)
    for step in (1, 2):
        network.zero_grad()
        whole_loss(network).backward()
        for block in network.blocks:
            assert block.attention.debias.key.num_batches_tracked.max() == step
            assert block.alignment_head.hidden.weight.grad.abs().sum() > 0
            block.attention.debias.commit()  # by hand: nothing waits
            assert block.attention.debias.key.num_batches_tracked.max() == step
    torch.manual_seed(0)
    plain = OwnNetwork()
    whole_loss(plain)
    torch.testing.assert_close(whole_loss(plain), whole_loss(network))
    network.eval()
    network(HIDDEN)
    assert network.blocks[0].attention.debias.key.num_batches_tracked.max() == 3


def test_the_term_of_a_block_is_that_of_an_appended_model(labels):
    torch.manual_seed(0)
    model = append_encoder(backbone("bert"), 3).train()
    block = DebiasedBlock(16, 2, DebiasConfig(**model.config.levelhead["debias"]))
    block.load_state_dict({**model.block.state_dict(), **model.alignment_head.state_dict(prefix="alignment_head.")})
    inputs = batch("bert")
    model(**inputs)
    block(model.backbone(**inputs).last_hidden_state, inputs["attention_mask"].bool())
    torch.testing.assert_close(alignment(block, labels), alignment(model, labels))
    ours, theirs = block.attention.debias.state_dict(), model.block.attention.debias.state_dict()
    for name in ("key.mean", "readout.mean"):
        torch.testing.assert_close(ours[name], theirs[name])


def test_a_network_of_ones_own_without_its_alignment_is_refused():
    network = OwnNetwork()
    logits = network(HIDDEN)
    with pytest.raises(LevelheadError, match="without its alignment term"):
        (F.cross_entropy(logits, TARGETS) + alignment(network, TARGETS)).backward()  # that of the last block alone
    network = OwnNetwork(alpha=0)
    F.cross_entropy(network(HIDDEN), TARGETS).backward()
    with pytest.raises(ConfigError, match="alpha=0"):
        alignment(network, TARGETS)
    plain = DebiasedBlock(8, 2)
    plain(HIDDEN).sum().backward()


def test_a_network_of_ones_own_compiles_and_calibrates():
    torch.manual_seed(0)
    network = OwnNetwork()
    expected = whole_loss(network).item()
    torch.manual_seed(0)
    again = OwnNetwork()
    logits = torch.compile(again, backend="eager")(HIDDEN)
    loss = F.cross_entropy(logits, TARGETS) + sum(alignment(block, TARGETS) for block in again.blocks)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert again.blocks[0].attention.debias.key.num_batches_tracked.max() == 1
    calibrate(network, [{"hidden": HIDDEN}] * 3)
    assert network.blocks[1].attention.debias.key.num_batches_tracked.max() == 3
