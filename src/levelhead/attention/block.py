"""A debiased encoder layer on top of a pretrained backbone: the paper's way for pretrained models.

Follows Lu, Wang, Wang, ICLR 2024: an additional encoder layer with debiased attention sits on the last hidden states,
and a linear head reads one row of its output. Left out: the authors' deeper sigmoid heads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, Self, cast, get_args

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.modeling_outputs import ImageClassifierOutput, SequenceClassifierOutput

from levelhead.appended import AppendedConfig
from levelhead.arrays import checked
from levelhead.attention import interface, one_row
from levelhead.attention.aligning import Tap, row_of, training_pass
from levelhead.attention.attach import KEEP_FLOAT32, forward_with_alignment, remember_place
from levelhead.attention.config import NOT_WANTED, DebiasConfig, Facts, Readout
from levelhead.attention.one_row import Projections, attend_from_row, is_hooked, is_plain, rows_in_words
from levelhead.attention.parts import last_hidden_state
from levelhead.attention.saved_names import in_own_names
from levelhead.attention.standardize import QueryKeyStandardizer, in_backward
from levelhead.types import ConfigError, check_sizes, refuse_absurd_network

POOLING = ("add_pooling_layer",)  # what a record may say about how the backbone is built


class BlockAttention(nn.Module):
    """Multi-head self-attention whose queries and keys are debiased by an optional standardizer."""

    is_causal = False  # else transformers would look back only

    def __init__(self, hidden_size: int, num_heads: int, standardizer: QueryKeyStandardizer | None, tap: Tap):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.debias = standardizer
        self.tap = tap

    def forward(self, hidden: Tensor, valid: Tensor | None = None) -> Tensor:
        """Attend within (batch, tokens, hidden size); no token looks at one whose ``valid`` is False."""
        query, key, value = (
            layer(hidden).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = None if valid is None else valid[:, None, None, :]
        mixed, _ = interface.levelhead_attention(self, query, key, value, mask)
        return cast(Tensor, self.output(mixed.flatten(2)))

    def reads_one_row(self, padded: bool = False) -> bool:
        """Whether :meth:`read_row` equals :meth:`forward` in the readout row.

        ``padded``: that row may be another one in each example, where statistics per position are not its own. The
        queries of the other rows must not matter to it (they do for statistics pooled with them), the values must
        come from a plain linear layer (folding them into the mean is wrong under LoRA or quantisation), and nobody
        may be waiting for what its attention works with.
        """
        if interface.is_observed():
            return False
        if not all(map(is_plain, (self.query, self.key, self.value, self.output))):
            return False
        options = self.tap.debias
        if options is not None and not options.readout_only:
            return False
        return self.debias is None or self.debias.statistics == "cls_feature" or not padded

    def read_row(self, hidden: Tensor, valid: Tensor | None, row: Tensor) -> Tensor:
        """Return what :meth:`forward` gives in each example's ``row`` (batch,), as (batch, hidden size).

        Only keys are computed for all tokens. Values are folded: the attention's mean of W x is W times the mean of x.
        """
        mixed = attend_from_row(
            self,
            hidden,
            row,
            Projections(self.query, self.key, self.value, self.num_heads),
            scaling=(self.query.out_features // self.num_heads) ** -0.5,
            valid=valid,
            mask=None if valid is None else valid[:, None],
        )
        return cast(Tensor, self.output(mixed))


class EncoderBlock(nn.Module):
    """One transformer encoder layer with debiased attention, inside a model that commits and aligns.

    :class:`DebiasedBlock` has the arguments.
    """

    aligns: ClassVar[bool] = False  # whether the block has the projector itself

    @checked
    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        debias: DebiasConfig | None = None,
        *,
        length: int | None = None,
        intermediate_size: int | None = None,
        norm: Literal["pre", "post"] = "pre",
        activation: str = "gelu",
    ):
        super().__init__()
        wide = intermediate_size or hidden_size
        check_sizes(hidden_size=hidden_size, num_heads=num_heads, intermediate_size=wide)
        refuse_absurd_network(
            f"hidden_size={hidden_size}, intermediate_size={wide}, length={length}",
            hidden_size * (4 * hidden_size + 2 * wide + 4 * (length or 0)),
        )
        if hidden_size % num_heads:
            raise ConfigError(f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}")
        if activation not in ACT2FN:
            raise ConfigError(f"activation={activation!r} is not known to transformers; 'gelu' and 'relu' are")
        if debias is not None and "auto" in (debias.statistics, debias.readout):
            raise ConfigError("DebiasedBlock needs debias.statistics and debias.readout spelled out, not 'auto'")
        standardizer = None
        if debias is not None:
            # Without a length the standardizer says what it needs.
            debias = debias.resolved(Facts("append", "the backbone", cast(Readout, debias.readout), length=length or 0))
        if debias is not None and debias.normalize:
            standardizer = debias.standardizer(num_heads, hidden_size // num_heads, length=length)
        tap = Tap("none") if debias is None else Tap(debias.readout, debias, first_real=True)
        self.norm = norm
        self.attention = BlockAttention(hidden_size, num_heads, standardizer, tap)
        self.norm_attention = nn.LayerNorm(hidden_size)
        self.norm_feed_forward = nn.LayerNorm(hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_size, wide), ACT2FN[activation], nn.Linear(wide, hidden_size)
        )
        if self.aligns and debias is not None and debias.alpha:
            self.alignment_head = debias.alignment_head(hidden_size)

    def forward(self, hidden: Tensor, valid: Tensor | None = None) -> Tensor:
        """Transform (batch, tokens, hidden size); ``valid`` (batch, tokens) bool is False at padding."""
        return self._layer(hidden, hidden, lambda tokens: self.attention(tokens, valid))

    def _layer(self, hidden: Tensor, kept: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the layer's output for the rows of ``hidden`` that are ``kept``, whose attention ``attend`` gives."""
        if self.norm == "pre":
            kept = kept + attend(self.norm_attention(hidden))
            return kept + cast(Tensor, self.feed_forward(self.norm_feed_forward(kept)))
        kept = cast(Tensor, self.norm_attention(kept + attend(hidden)))
        return cast(Tensor, self.norm_feed_forward(kept + self.feed_forward(kept)))

    def reads_one_row(self, padded: bool = False) -> bool:
        """Whether :meth:`read_row` may take the place of :meth:`forward` where one row is read."""
        return self.attention.reads_one_row(padded) and not any(map(is_hooked, self.modules()))

    def read_row(self, hidden: Tensor, valid: Tensor | None, row: Tensor) -> Tensor:
        """Return what :meth:`forward` gives in each example's ``row`` (batch,), as (batch, hidden size)."""
        one = hidden[torch.arange(hidden.shape[0], device=hidden.device), row]
        return self._layer(hidden, one, lambda tokens: self.attention.read_row(tokens, valid, row))


class DebiasedBlock(EncoderBlock):
    """One transformer encoder layer with debiased attention, for a network of your own.

    In training mode a pass uses the statistics of the batch and moves the running ones, once, also under gradient
    checkpointing. With ``alpha`` above 0 the block has a projector, ``alignment_head``: add ``alpha`` times
    :func:`alignment` of the network, or of each block, to your loss. The backward pass raises an error without it.
    Put another layer below: a class token that is equal in all examples has no deviation.

    Args:
        hidden_size: width of the tokens.
        num_heads: attention heads.
        debias: options, with ``statistics``, ``absolute`` and ``readout`` spelled out (not ``auto``), or None for the
            plain layer of the same size.
        length: number of tokens, needed by ``statistics="position"``.
        intermediate_size: width of the feed-forward layer; None means the hidden size, as in the notebooks.
        norm: ``pre`` normalises before each half, ``post`` after each residual sum.
        activation: name of the feed-forward activation, as transformers spells it.

    Input and output (batch, tokens, hidden size). A state dict without the projector loads as well; a warning says so.

    Errors: :class:`~levelhead.ConfigError` for options that cannot be right.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ.

    Examples:
        >>> import torch
        >>> import levelhead as lh
        >>> block = lh.DebiasedBlock(16, 2, lh.DebiasConfig(statistics="feature", readout="none"))
        >>> hidden = block(torch.randn(4, 5, 16))  # in training mode, with the statistics of this batch
        >>> (hidden.square().mean() + lh.alignment(block, torch.tensor([0, 1, 0, 1]))).backward()
    """

    aligns = True

    def forward(self, hidden: Tensor, valid: Tensor | None = None) -> Tensor:
        """Transform (batch, tokens, hidden size); ``valid`` (batch, tokens) bool is False at padding."""
        if self.attention.tap.debias is None or in_backward():
            return super().forward(hidden, valid)
        with training_pass(self):
            return super().forward(hidden, valid)


class AppendedClassifier(PreTrainedModel):
    """A backbone, one (debiased) encoder layer on its last hidden states, and a linear head on the readout row.

    Made by :func:`append_encoder`. A frozen backbone stays in evaluation mode whatever :meth:`train` says, and
    builds no graph. It may be taken away for training on features that it gave before (``model.backbone = None``,
    then ``forward(features=...)``), and must be put back before saving. With ``length_parts`` above 1 it runs on that
    many parts of a batch of texts, alike in length: the same result with less padding. With ``micro_batch`` it runs on
    at most this many rows at a time, and again in the backward pass: the same gradients in less memory.
    """

    config: AppendedConfig
    config_class = AppendedConfig
    base_model_prefix = "backbone"
    accepts_loss_kwargs = False
    length_parts = 1
    micro_batch: int | None = None
    _keep_in_fp32_modules_strict = KEEP_FLOAT32

    def __init__(self, config: AppendedConfig, backbone: PreTrainedModel | None = None):
        super().__init__(config)
        record = config.levelhead
        if record["readout"] not in get_args(Readout):
            raise ConfigError(f"readout={record['readout']!r}; choose one of {get_args(Readout)}")
        debias = None if record["debias"] is None else DebiasConfig(**record["debias"])
        if backbone is None:
            backbone = _new_backbone(config.backbone, record)
        else:
            for module in backbone.modules():  # or post_init below would draw its weights again
                module._is_hf_initialized = True
        self.backbone: PreTrainedModel | None = backbone
        self.main_input_name = backbone.main_input_name
        self.below = nn.ModuleList(_block(record, None) for _ in range(record["layers"] - 1))
        self.block = _block(record, debias)
        self.readout = Tap(record["readout"], first_real=True)
        self.classifier = nn.Linear(record["hidden_size"], config.num_labels)
        if debias is not None and debias.alpha:
            self.alignment_head = debias.alignment_head(record["hidden_size"])
        self.frozen = record["freeze"]
        if self.frozen:
            backbone.requires_grad_(False).eval()
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        """Load as transformers does, and freeze the backbone again: loading makes new parameters of its weights."""
        loaded = super().from_pretrained(*args, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # output_loading_info=True gives a report, too
        if model.frozen:
            model.backbone.requires_grad_(False)
        return loaded

    def train(self, mode: bool = True) -> AppendedClassifier:
        """Set the mode of block and head; a frozen backbone stays in evaluation mode.

        Raises :class:`~levelhead.ConfigError` for a frozen backbone with parameters that wait for training (LoRA puts
        them there): no gradient would ever reach them.
        """
        super().train(mode)
        if self.frozen and self.backbone is not None:
            self.backbone.eval()
            if mode and any(parameter.requires_grad for parameter in self.backbone.parameters()):
                raise ConfigError(
                    "The backbone is frozen, and some of its parameters require a gradient, which would never come. "
                    "For LoRA, use append_encoder(..., freeze=False): PEFT freezes the backbone's own weights."
                )
        return self

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        features: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Classify; the inputs are the backbone's own.

        ``features`` (batch, tokens, hidden size), of any floating type, are the backbone's last hidden states where
        they are known already: they take the place of its inputs, and only ``attention_mask`` goes with them.
        ``labels`` (batch,) int64 adds the loss: cross-entropy, plus alpha times alignment in training. Returns a
        ``SequenceClassifierOutput`` (``ImageClassifierOutput`` for pictures) with ``logits`` (batch, num_labels), or
        a tuple with ``return_dict=False``. ``output_attentions`` and ``output_hidden_states`` add those of the
        backbone, as it gives them, and then of each appended layer; the last attentions are the debiased ones.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "pixel_values": pixel_values,
            "inputs_embeds": inputs_embeds,
            "features": features,
            **kwargs,
        }
        inputs = {name: value for name, value in inputs.items() if value is not None}
        more = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        asked = {name: True for name in more if one_row.is_asked(self, more, name)}
        if self.config.levelhead["debias"] is None:
            output = self._classify(inputs, labels, asked)
        else:
            output = forward_with_alignment(self, labels, lambda: self._classify(inputs, labels, asked))
        return output.to_tuple() if return_dict is False else output

    def _classify(self, inputs: dict[str, Any], labels: Tensor | None, asked: dict[str, bool]) -> Any:
        below = self._outputs(inputs, asked) if asked and "features" not in inputs else {}
        hidden = below["last_hidden_state"] if below else self._features(inputs)
        valid = inputs.get("attention_mask")
        if valid is not None:
            if valid.shape != hidden.shape[:2]:
                raise ConfigError(
                    f"attention_mask has shape {tuple(valid.shape)}, and the backbone returned "
                    f"{tuple(hidden.shape[:2])} tokens"
                )
            valid = valid.bool()
        states: list[Tensor] = [*(below.get("hidden_states") or [hidden])]
        seen: list[interface.Attended] = []
        with interface.watched(seen.append) if asked else nullcontext():
            for block in self.below:
                hidden = block(hidden, valid)
                states.append(hidden)
            logits, last = self._read(hidden, valid)
        loss = None if labels is None else F.cross_entropy(logits.float(), labels)
        output_class = ImageClassifierOutput if self.main_input_name == "pixel_values" else SequenceClassifierOutput
        output = output_class(loss=loss, logits=logits)
        if "output_hidden_states" in asked:
            output["hidden_states"] = (*states, last)
        if "output_attentions" in asked:
            own = (interface.attention_weights(one.query, one.key, one.mask, one.scaling) for one in seen)
            output["attentions"] = (*(below.get("attentions") or ()), *own)
        return output

    def _outputs(self, inputs: dict[str, Any], asked: dict[str, bool]) -> dict[str, Any]:
        """Return all that the backbone gives of one whole batch, with its attentions and hidden states where asked."""
        backbone = self._there()
        ours = "output_attentions" in asked and backbone.config._attn_implementation == "sdpa"
        with (
            torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen),
            interface.switched(backbone) if ours else nullcontext(),
            interface.returning_weights(ours),
        ):
            return dict(backbone(**inputs, **asked))

    def _there(self) -> PreTrainedModel:
        """Return the backbone, or raise :class:`~levelhead.ConfigError` while it is taken away."""
        if self.backbone is None:
            raise ConfigError(
                "This model's backbone was taken away. Call it with features=, or put model.backbone back."
            )
        return self.backbone

    def _read(self, hidden: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the logits, and the last layer's output: of the readout row alone, or of all rows."""
        row = self.readout.row(hidden[:, None], valid)
        if row is not None and self.block.reads_one_row(padded=valid is not None):
            hidden = self.block.read_row(hidden, valid, row)
            return self.classifier(hidden), hidden
        hidden = self.block(hidden, valid)
        return self.classifier(row_of(hidden[:, None], row, valid)[:, 0]), hidden

    def extra_repr(self) -> str:
        """Say whether the appended layer computes one row or all, and why."""
        return f"last layer {rows_in_words(self.why_all_rows())}"

    def why_all_rows(self) -> str | None:
        """Say why the appended layer computes all rows as it stands, or None; padding may be one more reason."""
        if self.readout.readout == "none":
            return "no single row is read"
        if self.block.reads_one_row():
            return None
        options = self.block.attention.tap.debias
        if options is not None and not options.readout_only:
            undecided = replace(options, readout_only="auto")
            return undecided.why_all_rows(_facts(self.config.levelhead, False)) or NOT_WANTED
        hooked = any(map(is_hooked, self.block.modules()))
        return "a hook is registered on it" if hooked else "a projection is no plain linear layer"

    def _features(self, inputs: dict[str, Any]) -> Tensor:
        if "features" in inputs:
            extra = inputs.keys() - {"features", "attention_mask"}
            if extra:
                raise ConfigError(f"features replace the backbone's inputs; remove {', '.join(extra)}")
            return cast(Tensor, inputs["features"].to(self.classifier.weight.dtype))
        padding_is_text = not self.block.attention.tap.padding_mask
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return last_hidden_state(
                self._there(), inputs, self.length_parts, self.micro_batch, padding_is_text=padding_is_text
            )

    def debias(self, config: DebiasConfig) -> Self:
        """Debias the appended layer in place, as :func:`append_encoder` would have made it; what it has learnt stays.

        This is what :func:`levelhead.attach` does to a model that was appended with ``debias=None``.
        """
        plain, record = self.block, self.config.levelhead
        if record["debias"] is not None:
            raise ConfigError("The appended layer is debiased already: append another one to change its options.")
        record = debiased_record(record, config, self.main_input_name == "pixel_values")
        like = next(plain.parameters())  # a frozen backbone may be of another type
        block = _block(record, DebiasConfig(**record["debias"])).to(like.device, like.dtype)
        missing = block.load_state_dict(plain.state_dict(), strict=False).missing_keys
        assert all(name.startswith("attention.debias.") for name in missing)
        for name, parameter in plain.named_parameters():
            block.get_parameter(name).requires_grad_(parameter.requires_grad)
        self.config = copy.deepcopy(self.config)  # other networks may have been built from it
        self.config.levelhead = record
        self.block, self.readout = block.train(plain.training), Tap(record["readout"], first_real=True)
        if config.alpha:
            self.alignment_head = config.alignment_head(record["hidden_size"]).to(like.device, like.dtype)
            self.alignment_head.apply(self._init_weights)
        return self

    def load_state_dict(self, state_dict: Any, *args: Any, **options: Any) -> Any:
        """Load as torch does, also from the names that :meth:`save_pretrained` writes."""
        return super().load_state_dict(in_own_names(self, state_dict), *args, **options)

    def save_pretrained(self, *args: Any, **options: Any) -> Any:
        """Save as transformers does; raises :class:`~levelhead.ConfigError` while the backbone is taken away."""
        self._there()
        saved = super().save_pretrained(*args, **options)
        remember_place(self, *args, **options)
        return saved


def _new_backbone(described: Mapping[str, Any], record: Mapping[str, Any]) -> PreTrainedModel:
    """Build the backbone that a record names: a model of transformers of the type described, and nothing else."""
    config = AutoConfig.for_model(**described)
    name, arguments = record["backbone_class"], record["backbone_arguments"]
    kind: Any = getattr(transformers, str(name), None)
    is_model = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
    if not is_model or not isinstance(config, kind.config_class):
        raise ConfigError(f"backbone_class is {str(name)[:80]!r}, which is no {config.model_type} of transformers.")
    return cast(PreTrainedModel, kind(config, **{key: bool(arguments[key]) for key in arguments if key in POOLING}))


def _facts(record: Mapping[str, Any], images: bool) -> Facts:
    return Facts("append", record["backbone_class"], record["readout"], images=images, length=record["tokens"])


def debiased_record(record: dict[str, Any], debias: DebiasConfig, images: bool) -> dict[str, Any]:
    """Return the record of a plain appended layer with debiasing, whose automatic options are spelled out."""
    debias = debias.resolved(_facts(record, images))
    return {**record, "debias": asdict(debias), "readout": debias.readout}


def _block(record: Mapping[str, Any], debias: DebiasConfig | None) -> EncoderBlock:
    return EncoderBlock(
        record["hidden_size"],
        record["num_heads"],
        debias,
        length=record["tokens"] if debias is not None and debias.statistics == "position" else None,
        intermediate_size=record["intermediate_size"],
        norm=record["norm"],
        activation=record["activation"],
    )


# So that pipelines and Auto classes know the model; its configuration they know once levelhead is imported.
AutoModelForImageClassification.register(AppendedConfig, AppendedClassifier, exist_ok=True)
AutoModelForSequenceClassification.register(AppendedConfig, AppendedClassifier, exist_ok=True)
