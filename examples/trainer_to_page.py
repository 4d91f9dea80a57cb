"""Train a plain and a debiased text classifier with the Hugging Face Trainer, and end in a page to show to others.

python examples/trainer_to_page.py [--out out] [--model MODEL]

Without --model, a small network reads texts of letters, in under a minute on two cores. The class is what of x and y is
frequent; a last letter that goes with the class in training is what a model should not go by.
"""

import argparse
import random
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast, Trainer
from transformers.trainer import TrainingArguments, set_seed

import levelhead as lh

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("out"))
parser.add_argument("--model", help="a pretrained backbone; its layers are trained, too")
parser.add_argument("--texts", type=int, default=1000)
options = parser.parse_args()


def texts(rows: int, seed: int, together: float) -> Dataset:
    """Each of eight letters is x or y, more often that of the label; p goes with x as often as ``together`` says."""
    draw = random.Random(seed)
    lines, labels = [], [row % 2 for row in range(rows)]
    for label in labels:
        letters = ["xy"[label if draw.random() < 0.65 else 1 - label] for _ in range(8)]
        lines.append(" ".join([*letters, "pq"[label if draw.random() < together else 1 - label]]))
    return Dataset.from_dict({"text": lines, "label": labels, "writer": [f"ends with {line[-1]}" for line in lines]})


def backbone() -> tuple:
    """Return a new backbone and its tokenizer; the same weights each time."""
    set_seed(0)
    if options.model:
        return AutoModel.from_pretrained(options.model), AutoTokenizer.from_pretrained(options.model)
    words = Tokenizer(models.WordLevel({w: at for at, w in enumerate(["<pad>", *"pqxy"])}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<pad>")
    return BertModel(BertConfig(vocab_size=5, pad_token_id=0, **size)), tokenizer


train, test = texts(options.texts, 1, together=0.9), texts(options.texts, 2, together=0.5)
arguments = TrainingArguments(
    str(options.out), num_train_epochs=6, per_device_train_batch_size=32, dataloader_drop_last=True,
    learning_rate=2e-5 if options.model else 3e-3, logging_steps=20, report_to="none", save_strategy="no", seed=0,
)  # fmt: skip
for name, debias in (("plain", None), ("debiased", lh.DebiasConfig())):
    network, tokenizer = backbone()
    model = lh.append_encoder(network, num_labels=2, debias=debias, freeze=False, id2label={0: "x", 1: "y"})
    rows = train.remove_columns("writer").map(lambda row, of=tokenizer: of(row["text"], truncation=True))  # no group
    callbacks = [lh.DebiasLog()] if debias else []
    trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer, callbacks=callbacks)
    trainer.train()
    trainer.save_model(str(options.out / name))  # with the tokenizer

found = lh.compare_models(options.out / "plain", options.out / "debiased", test, text="text", groups="writer")
print(found)
page, folder = options.out / "page.html", options.out / "debiased"
page.write_text(found.to_html())
lh.model_card(
    folder, task="Says whether x or y is more frequent.", data="letters drawn by this script",
    groups="the last letter", training=arguments, measured=found, folder=folder,
)  # fmt: skip
print(f"The page is {page}, the model and its card are in {folder}.")
