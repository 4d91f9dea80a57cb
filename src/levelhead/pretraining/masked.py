"""Reconstruction of masked patches, as in masked autoencoders: the network that is pretrained, and what is kept of it.

The network is ``ViTMAEForPreTraining`` of transformers. Its encoder has the weights of an ordinary ``ViTModel``, by the
same names, and computes the same when no patch is masked: that is what is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from levelhead.pretraining.config import MaskedViT

PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "resample": 2,  # bilinear
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
"""What a preprocessor_config.json says that makes of a picture what pretraining saw, but for its size."""


def processor(image_size: int) -> dict[str, Any]:
    """Return the content of a preprocessor_config.json for pictures of ``image_size`` pixels a side."""
    return {**PROCESSOR, "size": {"height": image_size, "width": image_size}}


def build_masked(model: MaskedViT) -> Any:
    """Return a fresh encoder and decoder; draws from torch's global generator.

    Called with ``pixel_values`` (batch, 3, image_size, image_size), its ``loss`` is the mean squared error of the
    hidden patches (batch, patches - visible, patch_size^2 * 3). Positions are fixed sines and cosines.
    """
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    network = ViTMAEForPreTraining(
        ViTMAEConfig(
            **_sizes(model),
            decoder_hidden_size=model.decoder_hidden_size,
            decoder_num_hidden_layers=model.decoder_layers,
            decoder_num_attention_heads=model.decoder_heads,
            decoder_intermediate_size=4 * model.decoder_hidden_size,
            # A share that leaves exactly this many: what is left is rounded down there.
            mask_ratio=1 - (model.visible + 0.5) / model.patches,
            norm_pix_loss=model.normalize_patches,
        )
    )
    _place(network, model)
    return network


@torch.no_grad()
def _place(network: Any, model: MaskedViT) -> None:
    """Set positions, the class token and the mask token.

    Some versions of transformers (5.23 is one) leave all of them zero in a network that is trained from scratch, and
    positions are not learnt: a decoder that cannot tell where a patch was hidden predicts the same for all.
    """
    side = model.image_size // model.patch_size
    network.vit.embeddings.position_embeddings.copy_(positions(side, model.hidden_size))
    network.decoder.decoder_pos_embed.copy_(positions(side, model.decoder_hidden_size))
    network.vit.embeddings.cls_token.normal_(std=0.02)
    network.decoder.mask_token.normal_(std=0.02)


def positions(side: int, width: int) -> Tensor:
    """Return fixed positions (1, 1 + side^2, width): zeros for the class token, then those of patches, row by row.

    The first half of the width tells the row, the second the column, each by sin(p w_j) and cos(p w_j) with
    w_j = 10000^(-j / (width / 4)), for j from 0 to width / 4 - 1.

    Source: Vaswani et al., arXiv:1706.03762, section 3.5, in two dimensions as in He et al., arXiv:2111.06377.
    """
    frequencies = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = torch.arange(side, dtype=torch.float64)[:, None] * frequencies
    of_one = torch.cat([angles.sin(), angles.cos()], dim=1)  # (side, width / 2)
    patches = torch.cat([of_one.repeat_interleave(side, 0), of_one.repeat(side, 1)], dim=1)
    return torch.cat([torch.zeros(1, width, dtype=torch.float64), patches])[None].float()


def encoder_of(masked: Any, model: MaskedViT) -> Any:
    """Return the encoder as a ``ViTModel`` that sees every patch, in evaluation mode; the decoder is left out.

    Raises RuntimeError if the weights of this version of transformers do not fit.
    """
    from transformers import ViTConfig, ViTModel

    encoder = ViTModel(ViTConfig(**_sizes(model)), add_pooling_layer=False)
    encoder.load_state_dict(masked.vit.state_dict())
    return encoder.eval()


def _sizes(model: MaskedViT) -> dict[str, Any]:
    return {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate_size or 4 * model.hidden_size,
        "image_size": model.image_size,
        "patch_size": model.patch_size,
    }
