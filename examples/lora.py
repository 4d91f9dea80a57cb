"""Debias the last layer of a text classifier and train it with LoRA. A few seconds on one core, no download.

pip install "levelhead[peft]"
python examples/lora.py

The small network with random weights stands for a pretrained one, and the texts are random tokens: the class says
which of two tokens was put into the text.
"""

import tempfile

import torch
from peft import get_peft_model
from transformers import BertConfig, BertForSequenceClassification

import levelhead as lh

torch.manual_seed(0)
tokens = torch.randint(10, 100, (512, 12))
labels = torch.arange(512) % 2
tokens[:, 0] = 1  # the token that the classifier reads
tokens[torch.arange(512), torch.randint(1, 12, (512,))] = 2 + labels
batches = [{"input_ids": tokens[rows], "labels": labels[rows]} for rows in torch.randperm(448).split(64)]
test_tokens, test_labels = tokens[448:], labels[448:]

config = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=16,
)
model = lh.attach(BertForSequenceClassification(config))
lh.calibrate(model, batches)  # so that evaluation means something before the first step, too

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(f"{folder}/base")
    # On all linear layers. The head, the projector and the running statistics are trained and saved whole.
    model = get_peft_model(model, lh.lora_config(model, r=8))
    model.print_trainable_parameters()

    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 5e-3)
    model.train()
    for _ in range(30):
        for batch in batches:
            loss = model(**batch).loss  # task + alpha * alignment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    model.save_pretrained(f"{folder}/adapter")
    loaded = lh.from_pretrained(f"{folder}/adapter")  # with its base

with torch.no_grad():
    logits, again = model(input_ids=test_tokens).logits, loaded(input_ids=test_tokens).logits
print(f"last loss {loss.item():.3f}, accuracy on other texts {(logits.argmax(-1) == test_labels).float().mean():.2f}")
print(f"equal outputs after loading: {torch.equal(logits, again)}")
