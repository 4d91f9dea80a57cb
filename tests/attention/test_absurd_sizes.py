"""A network that no machine can hold is refused with its cost, before anything of it is made."""

import time

import pytest
from tiny_models import backbone, build

from levelhead.attention import DebiasConfig, DebiasedBlock, append_encoder, attach
from levelhead.models.networks import BackboneModel, ScratchViT
from levelhead.types import ConfigError

OWN = DebiasConfig(statistics="position", readout="first")


def append(**options):
    return append_encoder(backbone("bert"), **{"num_labels": 3, **options})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ScratchViT(hidden_size=10**7), "GB, and four times that in training"),
        (lambda: ScratchViT(layers=10**6), "1,000,000 layers; at most 1,000"),
        (lambda: ScratchViT(image_size=2**30, patch_size=2), "parameters: .* GB"),
        (lambda: ScratchViT(intermediate_size=10**9), "parameters: .* GB"),
        (lambda: BackboneModel("somewhere", layers=10**6), r"model\.layers gives 1,000,000 layers"),
        (lambda: append(layers=10**6), "1,000,000 layers; at most 1,000"),
        (lambda: append(layers=2.5), r"layers is 2\.5; it takes a whole number"),
        (lambda: append(intermediate_size=10**12), "parameters: .* GB"),
        (lambda: append(num_labels=10**18), "at least 2 classes and at most 1,000,000"),
        (lambda: append(num_labels=10**19), r"it takes a whole number below 2\*\*63"),
        (lambda: append(debias=DebiasConfig(projection_hidden=10**12)), "projection_hidden.* parameters: .* GB"),
        (lambda: attach(build("bert"), DebiasConfig(projection_size=10**12)), "projection_size.* parameters: .* GB"),
        (lambda: attach(build("bert"), DebiasConfig(notebook={"queue": 10**12})), "queue.* parameters: .* GB"),
        (lambda: DebiasedBlock(10**7, 1), "hidden_size=10000000.* parameters: .* GB"),
        (lambda: DebiasedBlock(16, 2, OWN, length=10**12), "length=1000000000000.* parameters: .* GB"),
        (lambda: DebiasedBlock(1e7, 1), "hidden_size=10000000.* parameters: .* GB"),
        (lambda: DebiasedBlock(16, 0), "num_heads=0; it must be a whole number"),
        (lambda: DebiasedBlock(16, 2, intermediate_size=-1), "intermediate_size=-1; it must be a whole number"),
    ],
)
def test_an_absurd_size_is_refused_with_its_cost(make, match):
    begun = time.process_time()
    with pytest.raises(ConfigError, match=match):
        make()
    assert time.process_time() - begun < 5
