"""Debiased attention in a network of your own: python examples/own_network.py. A few seconds, no download.

The pictures are noise; those of one class are brighter on the left.
"""

import torch
from torch import nn

import levelhead as lh

OPTIONS = lh.DebiasConfig(statistics="position", readout="first", alpha=0.5)


class Network(nn.Module):
    """A class token and 16 patches, one plain layer (or the tokens would all be alike), and the debiased one."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, kernel_size=4, stride=4)
        self.positions = nn.Parameter(torch.randn(17, 32) * 0.02)
        self.below = nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True)
        self.block = lh.DebiasedBlock(32, 4, OPTIONS, length=17)
        self.head = nn.Linear(32, 2)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, 2) of pictures (batch, 1, 16, 16)."""
        patches = self.patches(pictures).flatten(2).transpose(1, 2)
        tokens = nn.functional.pad(patches, (0, 0, 1, 0)) + self.positions
        return self.head(self.block(self.below(tokens))[:, 0])


pictures, labels = torch.randn(640, 1, 16, 16, generator=torch.manual_seed(0)), torch.arange(640) % 2
pictures[labels == 1, :, :, :8] += 0.5
optimizer = torch.optim.AdamW((model := Network()).parameters(), 3e-3)
for rows in torch.randperm(512).repeat(10).split(64):
    optimizer.zero_grad()
    task = nn.functional.cross_entropy(model(pictures[rows]), labels[rows])
    (task + OPTIONS.alpha * lh.alignment(model, labels[rows])).backward()
    optimizer.step()
right = (model.eval()(pictures[512:]).argmax(-1) == labels[512:]).float().mean()
print(lh.describe(model), f"accuracy on other pictures {right:.2f}", sep="\n")
