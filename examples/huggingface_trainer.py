"""Train a debiased vision transformer with the Hugging Face Trainer, then audit it. About a minute on one core.

python examples/huggingface_trainer.py [--pictures 2000] [--epochs 8]
"""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import levelhead as lh
from levelhead.data import Examples, Portraits


class Pictures(Dataset):
    """What Trainer wants: one dict an example. No group is in it."""

    def __init__(self, examples: Examples) -> None:
        self.pixels = examples.inputs.batch(torch.arange(len(examples.labels)))["pixel_values"]
        self.labels = examples.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> dict:
        return {"pixel_values": self.pixels[position], "labels": self.labels[position]}


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pictures", type=int, default=2000)
parser.add_argument("--epochs", type=float, default=8)
options = parser.parse_args()

portraits = Portraits(correlation=1.0, train_size=options.pictures, test_size=options.pictures)
train, test = portraits.examples("train"), portraits.examples("test")
config = ViTConfig(
    hidden_size=96, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96, image_size=64, num_labels=2
)
model = lh.attach(ViTForImageClassification(config), lh.DebiasConfig(top_t=2))

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=64,
        dataloader_drop_last=True,  # a last batch of a few pictures has poor statistics
        learning_rate=5e-4,
        report_to="none",
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Pictures(train), eval_dataset=Pictures(test))
    trainer.train()
    arguments.dataloader_drop_last = False  # else the last test pictures are dropped too
    predicted = trainer.predict(trainer.eval_dataset).predictions.argmax(-1)

(style,) = portraits.groups("test")  # groups enter here, after training
print(lh.audit(test.labels, predicted, sensitive_features={"style": [style.names[code] for code in style.values]}))
