# %% [markdown]
"""# Pictures: plain training beside debiased attention

Drawn portraits, so no data and no network are needed. Hair colour is the task; the drawing style is the group that
training is not told. About a minute on one core: `python examples/notebook_vision.py`, or open it in Jupyter or
VS Code. `LEVELHEAD_QUICK=1` makes it a test of seconds, which says nothing about the methods.
"""

# %%
import os
import tempfile
from pathlib import Path

import torch
from PIL import Image
from rich import print

from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.data.portraits import Portraits
from levelhead.inspecting.figures import attention_figures
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import load_experiment
from levelhead.runs.train import train_run

torch.set_num_threads(1)
folder = Path(tempfile.mkdtemp(prefix="levelhead-"))
settings = ["train.device=cpu", "train.epochs=5", "data.test_size=2000"]
if os.environ.get("LEVELHEAD_QUICK"):
    settings += ["train.epochs=1", "data.train_size=256", "data.validation_size=128", "data.test_size=400"]

# %% [markdown]
# ## Look at the data
# Thirty-two training pictures. Light hair is nearly always drawn round: that is the correlation.

# %%
drawn = Portraits(train_size=200).examples("train").inputs.pixels[:32].reshape(4, 8, 3, 64, 64)
Image.fromarray(drawn.permute(0, 3, 1, 4, 2).reshape(256, 512, 3).numpy()).save(folder / "portraits.png")

# %% [markdown]
# ## Train both, in the same way
# The epoch is chosen by the validation loss. Groups are opened by `evaluate_run`, after training.

# %%
audits = {}
for method in ("erm", "dam"):
    experiment = load_experiment(f"portraits_{method}", settings, seed=0)
    train_run(experiment, folder / method)
    audits[method] = evaluate_run(folder / method)

# %% [markdown]
# ## One model: how large are the gaps, and how sure is that?

# %%
print(audits["dam"].table())

# %% [markdown]
# ## Two models: do these rows tell them apart?
# One seed each, so the intervals leave out what another seed would do: `levelhead compare --seeds 0-4` has them.

# %%
comparison = collect([folder / "erm", folder / "dam"], "test")[0].compare("erm")
print(Comparisons.of(comparison).table())

# %% [markdown]
# ## Where does the last layer look, by group?

# %%
print(attention_figures(folder / "dam").table())
