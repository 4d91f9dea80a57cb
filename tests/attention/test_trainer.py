"""The Hugging Face Trainer trains a debiased model as it would any other."""

import pytest
import torch
from tiny_models import LABELS, batch, build, make
from transformers import Trainer, TrainingArguments

from levelhead.attention import append_encoder, attach
from levelhead.attention.aligning import debiased_attention


class Examples(torch.utils.data.Dataset):
    """Twelve examples in a fixed order: two micro-batches of six."""

    def __init__(self, family):
        self.inputs = [batch(family, seed) for seed in (1, 2)]

    def __len__(self):
        return 12

    def __getitem__(self, index):
        inputs = self.inputs[index // 6]
        return {**{name: tensor[index % 6] for name, tensor in inputs.items()}, "labels": LABELS[index % 6]}


class InOrder(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def arguments(folder, **options):
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=6,
        **{"max_steps": 1, "learning_rate": 0.0, "save_strategy": "no"} | options,
        max_grad_norm=0.0,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


@pytest.mark.parametrize(("kind", "family"), [("attach", "vit"), ("attach", "bert"), ("append", "bert")])
def test_accumulated_gradient_is_the_mean_over_micro_batches(kind, family, tmp_path):
    reference = make(kind, family).train()
    losses = [reference(**inputs, labels=LABELS).loss for inputs in Examples(family).inputs]
    (sum(losses) / 2).backward()

    model = make(kind, family)
    gradients = {}

    class Spy(InOrder):
        def create_optimizer(self, *args, **kwargs):
            optimizer = super().create_optimizer(*args, **kwargs)
            optimizer.register_step_pre_hook(
                lambda *_: gradients.update(
                    {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
                )
            )
            return optimizer

    trainer = Spy(model, arguments(tmp_path, gradient_accumulation_steps=2), train_dataset=Examples(family))
    with pytest.warns(UserWarning, match="accumulated"):
        result = trainer.train()
    assert result.training_loss == pytest.approx((sum(losses) / 2).item(), rel=1e-5)
    expected = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert debiased_attention(model).debias.key.num_batches_tracked.max() == 2


@pytest.mark.parametrize(("kind", "family"), [("attach", "bert"), ("append", "bert")])
def test_evaluation_reports_the_task_loss(kind, family, tmp_path):
    model = make(kind, family)
    trainer = InOrder(model, arguments(tmp_path), train_dataset=Examples(family), eval_dataset=Examples(family))
    trainer.train()
    report = trainer.evaluate()
    model.eval()
    with torch.no_grad():
        expected = sum(
            torch.nn.functional.cross_entropy(model(**inputs).logits, LABELS).item()
            for inputs in Examples(family).inputs
        )
    assert report["eval_loss"] == pytest.approx(expected / 2, rel=1e-4)


@pytest.mark.parametrize("kind", ["attach", "append"])
def test_a_stopped_training_of_a_vit_goes_on_from_its_weights(kind, tmp_path):
    """transformers saves a ViT under other names than it has, and Trainer reads the file as it is."""

    def fresh():
        torch.manual_seed(1)
        if kind == "attach":
            return attach(build("vit"))
        return append_encoder(build("vit").vit, 3, freeze=False)

    options = arguments(tmp_path, learning_rate=0.01, max_steps=2, save_strategy="steps", save_steps=1)
    model = fresh()
    Trainer(model, options, train_dataset=Examples("vit")).train()
    again = fresh()
    Trainer(again, options, train_dataset=Examples("vit")).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)
    with pytest.raises(RuntimeError, match="stranger"):
        again.load_state_dict({**model.state_dict(), "stranger": torch.zeros(1)})
