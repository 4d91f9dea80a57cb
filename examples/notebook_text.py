# %% [markdown]
"""# Texts: the last encoder on a frozen backbone

Made-up sentences, so no data and no network are needed. The mood is the task (annoyed or pleased); the trade of the
person in the sentence is the group that training is not told. Half a minute on one core:
`python examples/notebook_text.py`. `LEVELHEAD_QUICK=1` makes it a test of seconds.
"""

# %%
import os
import tempfile
from pathlib import Path

import torch
from rich import print
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import levelhead as lh
from levelhead.bench.tables import collect
from levelhead.data.phrases import vocabulary
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run

torch.manual_seed(0)
torch.set_num_threads(1)
folder = Path(tempfile.mkdtemp(prefix="levelhead-"))
os.environ["LEVELHEAD_CACHE"] = str(folder / "cache")  # features go there; by default ~/.cache/levelhead
rows, epochs = (256, 2) if os.environ.get("LEVELHEAD_QUICK") else (2000, 8)

# %% [markdown]
# ## A backbone
# A tiny one with random weights stands for a pretrained one: `backbone: bert-base-uncased` in the recipe below.

# %%
words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[PAD]", "[UNK]", *vocabulary()])}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
tokenizer.save_pretrained(folder / "backbone")
size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
BertModel(BertConfig(vocab_size=len(tokenizer), pad_token_id=0, **size)).save_pretrained(folder / "backbone")

# %% [markdown]
# ## Train one encoder layer on its features
# The backbone runs once for each split; every epoch of both methods reads what was kept.

# %%
for method in ("erm", "dam"):
    recipe = {
        "data": {"name": "phrases", "train_size": rows, "validation_size": rows // 2, "test_size": rows},
        "method": {"name": method},
        "model": {"backbone": str(folder / "backbone"), "mode": "last_encoder"},
        "train": {"epochs": epochs, "batch_size": 64, "learning_rate": 3e-3, "device": "cpu"},
    }
    train_run(build_experiment(recipe), folder / method)
    evaluate_run(folder / method)

# %% [markdown]
# ## Audit the predictions, as any file of predictions
# Then ask whether these rows tell both models apart.

# %%
predictions = folder / "dam" / "predictions-test.parquet"
print(lh.audit_table(predictions, label="label", prediction="prediction", groups=["trade"], positive="pleased").table())
print("\n".join(collect([folder / "erm", folder / "dam"], "test")[0].compare("erm").sentences()))
