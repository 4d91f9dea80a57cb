"""A language model as the benchmarks use it: batched log-probabilities and seeded generation.

What is scored. A causal model reads a text behind the tokens that its tokenizer adds, and a text without a context
behind one in any case (:class:`~levelhead.lm.loading.Beginning`): its first token is scored like the rest. Where there
is no such token, the first one is only read. No end-of-sequence token is scored. Figures are natural logarithms.

Errors name a text by its index, or by its name where the caller gives ``names``.

How it is fast. Texts are batched by length, the longest first. The context of several options is run once and the
options continue from its cache. Batches are cut so that nothing is ever padded on the left: the part run once is as
long as the shortest context of the batch, what is left of longer ones goes with their options, and padding on the right
cannot be seen by what stands before it. So positions, sliding windows and recurrences are those of a single text. The
first batch is read both ways: a network that a quick way (:data:`CONTINUED`) changes is not read so, and one that
padding changes is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor

from levelhead.lm.base import THOUGHTS
from levelhead.lm.batches import (
    SPREAD,
    batches,
    gathered,
    name_of,
    shared_positions,
    shared_prefix,
    uniform_draws,
    until,
)
from levelhead.lm.loading import Beginning, load_checkpoint, place_of, to_device, tokens_known
from levelhead.loading import refuse_empty_tokenizer, refuse_unknown_tokens
from levelhead.storage import hash_tensors
from levelhead.types import ConfigError, DataError, LevelheadError, listed

LOGITS = 2**26  # logits held at a time: 256 MiB in float32
NOT_SCORED = {
    "doge": "what it attends to changes with the number of tokens",
    "recurrent_gemma": "transformers keeps its state inside the network, from one text to the next",
    "xlnet": "it predicts tokens in a permuted order, not from left to right",
}
"""Types of causal models whose log-probabilities would be wrong, and why."""
CONTINUED = "continue from a kept context as it reads the whole text"
GENERATED = "go on from a kept text as it reads the whole one"
"""Quick ways of reading, which not all can: Jamba continues by one token only, and Bamba begins at position 0."""


@dataclass(frozen=True)
class _Question:
    """One context and its options: ``rows`` are the token ids of the whole texts, ``starts`` where options begin."""

    index: int
    rows: list[list[int]]
    starts: list[int]

    @property
    def common(self) -> int:
        """The number of tokens that are run once: the last one before the first option belongs to the options."""
        return min(self.starts) - 1


class LanguageModel:
    """A causal or masked language model with its tokenizer; all methods keep the indices of their arguments.

    ``causal`` is False for a masked model. ``batch_tokens`` bounds a batch (None: 2,048 on a
    CPU, 8,192 elsewhere). A tokenizer without padding token is fine. Texts are read as they stand, see
    :meth:`dialogues` for chat templates.
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        *,
        causal: bool,
        name: str = "model",
        batch_tokens: int | None = None,
    ) -> None:
        refuse_empty_tokenizer("--model", name, tokenizer)
        if not causal and tokenizer.mask_token_id is None:
            raise ConfigError(f"--model {name} is a masked language model, and its tokenizer has no mask token.")
        self.network = network.eval()
        self.tokenizer, self.causal, self.name = tokenizer, causal, name
        self.device = next(network.parameters()).device
        self.batch_tokens = batch_tokens or (2048 if self.device.type == "cpu" else 8192)
        takes = inspect.signature(network.forward).parameters
        self._caches, self._keeps = "past_key_values" in takes, "logits_to_keep" in takes
        self._padded = False  # whether rows of unlike lengths were read together, and as if alone
        self._quick: dict[str, bool] = {} if self._caches else {CONTINUED: False, GENERATED: False}
        if causal and (reason := NOT_SCORED.get(network.config.model_type)):
            raise ConfigError(f"--model {name} cannot be scored: {reason}.")

    @classmethod
    def load(
        cls,
        name: str | Path,
        device: str = "auto",
        *,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "float32",
        allow_mismatched_weights: bool = False,
    ) -> LanguageModel:
        """Load a model by its name on the Hugging Face Hub, or from a folder that ``save_pretrained`` wrote.

        A model type that can be both (such as BERT) is causal only if its checkpoint names the causal class. Code that
        comes with a model is never run. ``allow_mismatched_weights`` takes weights all the same that do not fit the
        model's own config.json. ``dtype`` "auto" is the checkpoint's own type on a GPU, and float32 on a CPU.

        Raises:
            ConfigError: if there is no such model, if it is no language model, or if the device cannot be used.
        """
        place = place_of(name)
        on_gpu = torch.cuda.is_available() and device != "cpu"
        network, tokenizer, causal = load_checkpoint(
            "--model",
            place,
            dtype=("auto" if on_gpu else torch.float32) if dtype == "auto" else getattr(torch, dtype),
            masked=True,
            allow_mismatched_weights=allow_mismatched_weights,
        )
        to_device(network, device)
        return cls(network, tokenizer, causal=causal, name=place)

    def fingerprint(self) -> str:
        """Return a hash of what answers depend on: weights, their type, and the vocabulary."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        hash_tensors(digest, self.network.state_dict())
        digest.update(repr(sorted(self.tokenizer.get_vocab().items())).encode())
        digest.update(f"{type(self.network).__name__} error".encode())
        bos = self.tokenizer.bos_token_id
        if self.causal and self.beginning.every != (() if bos is None else (bos,)):
            digest.update(repr(self.beginning.every).encode())  # kept answers of other beginnings are another model's
        return digest.hexdigest()

    @cached_property
    def settings(self) -> str:
        """A hash of what answers depend on beside :meth:`fingerprint`: the config, and how a text becomes tokens."""
        free = ("architectures", "dtype", "transformers_version")
        config = {key: value for key, value in self.network.config.to_diff_dict().items()
                  if key not in free and not key.startswith("_")}  # fmt: skip
        cut = self.tokenizer("Its 12  words,\nÄRGER and naïve-ish don't; ＦＵＬＬ 犬 3.14!").input_ids
        said = json.dumps([config, list(cut)], sort_keys=True, default=str)
        return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()

    @property
    def told(self) -> dict[str, Any]:
        """What results record of the model beside its hash: the type of its numbers, and its revision on the Hub."""
        revision = getattr(self.network.config, "_commit_hash", None)
        return {"precision": str(self.network.dtype).removeprefix("torch."), "revision": revision}

    @cached_property
    def longest(self) -> int | None:
        """The number of tokens that the model can take, or None where it has no limit."""
        from levelhead.models.networks import COUNTS_FROM_PADDING

        config = self.network.config.get_text_config()
        positions = getattr(config, "max_position_embeddings", None)
        if positions and config.model_type in COUNTS_FROM_PADDING:
            positions -= config.pad_token_id + 1
        rope = getattr(config, "rope_parameters", None) or {}
        # Positions are coded in another way beyond it (Phi-3), those of short texts beside long ones too.
        window = rope.get("original_max_position_embeddings") if rope.get("rope_type") == "longrope" else None
        stated = (positions, window, self.tokenizer.model_max_length)
        limits = [value for value in stated if value and 0 < value < 10**9]
        return min(limits) if limits else None

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer has a chat template: the model was trained to answer in a dialogue."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def dialogues(self, prompts: Sequence[str], system: str = "") -> list[str]:
        """Return each prompt as a user's message in the tokenizer's chat template, up to where the answer begins.

        ``system`` is a system prompt; without one, the template's own is used, if it has any. Thinking is switched off
        where the template can; a template that begins a thought has it ended.

        Raises :class:`~levelhead.types.ConfigError` for a tokenizer without a template, and for a template that takes
        no system prompt.
        """
        if not self.has_chat_template:
            raise ConfigError(f"--chat: the tokenizer of --model {self.name} has no chat template: leave --chat out.")
        before = [{"role": "system", "content": system}] if system else []
        found = []
        for prompt in prompts:
            messages = [*before, {"role": "user", "content": prompt}]
            try:
                text = self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            except (TemplateError, TypeError, ValueError) as error:
                hint = "leave --system out" if system else "leave --chat out"
                raise ConfigError(f"--chat: the chat template of {self.name} fails ({error}): {hint}.") from error
            found.append(f"{text.rstrip()}\n\n</think>\n\n" if text.rstrip().endswith("<think>") else text)
        return found

    def window_log_likelihoods(
        self, texts: Sequence[str], stride: int | None = None, names: Sequence[str] | None = None
    ) -> Iterator[tuple[int, tuple[float, int]]]:
        """Yield ``(index, (log-probability of the text, its scored tokens))`` for texts of any length.

        A text beyond the model's limit is read in windows of that length (2,048 where there is no limit), each
        ``stride`` tokens further (None: half of it) and behind the token that texts begin with. Every token is scored
        once, in the first window that holds it, so behind all that is left of its context: at least window - stride.

        Raises :class:`~levelhead.types.DataError` for a text without tokens, by name, and
        :class:`~levelhead.types.ConfigError` for a stride that leaves no context.
        """
        self._require(True, "log-likelihoods of whole texts")
        longest = self.longest or 2048
        step = longest // 2 if stride is None else stride
        head = [*self.beginning.every, *self.beginning.alone]
        if not 1 <= step <= longest - max(1, len(head)):
            raise ConfigError(f"A stride of {step} does not fit windows of {longest} tokens: give 1 to {longest // 2}.")
        windows: list[tuple[tuple[int, int], list[int], int]] = []  # text and number, ids, first that is scored
        parts, counts = dict[int, int](), dict[int, int]()
        for index, ids in enumerate(self._unwarned(texts)):
            first = 0 if head else 1
            if len(ids) <= first:
                raise DataError(f"Text {name_of(names, index)} has fewer than {first + 1} tokens: nothing to score.")
            counts[index], parts[index] = len(ids) - first, 0
            room, begin, done = longest - len(head), 0, first
            while done < len(ids):
                end = min(begin + room, len(ids))
                windows.append(((index, parts[index]), head + ids[begin:end], len(head) + done - begin))
                parts[index] += 1
                begin, done = begin + step, end
        batched = batches([len(row) for _, row, _ in windows], min(self.batch_tokens, self._positions))
        for index, found in gathered(self._each(windows, batched, self._sums, names), parts):
            yield index, (math.fsum(found), counts[index])

    @torch.inference_mode()
    def _each(
        self,
        parts: Sequence[tuple[tuple[int, int], list[int], int]],
        batched: Iterable[list[int]],
        score: Callable[[Sequence[list[int]], Sequence[int]], list[float]],
        names: Sequence[str] | None,
    ) -> Iterator[tuple[tuple[int, int], float]]:
        """Yield the score of each part, of text and number, ids and a place in them."""
        for batch in batched:
            keys, rows, places = zip(*(parts[at] for at in batch), strict=True)
            values = score(rows, places)
            self._refuse_not_finite(values, [index for index, _ in keys], names)
            yield from zip(keys, values, strict=True)

    def option_log_likelihoods(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: Sequence[str] | None = None
    ) -> Iterator[tuple[int, list[tuple[float, int]]]]:
        """Yield ``(index, [(log-probability of the option given the context, its tokens), ...])`` as batches finish.

        An option is appended to its context as it stands, so it brings its own space. Its tokens are those of the
        whole text behind the tokens that it shares with the context alone; where the tokenizer merges characters
        across the boundary, the merged token belongs to the option. One context is thus cut alike for most options,
        and never are tokens scored that the model would not see in the running text.

        Raises :class:`~levelhead.types.DataError`, by name, for an option without tokens, for one with nothing before
        it (no context, and a tokenizer without special tokens), and for a text beyond the model's limit.
        """
        self._require(True, "log-likelihoods of options")
        questions = [question for question in self._questions(contexts, options, names) if question.rows]
        asked = {question.index for question in questions}
        yield from ((index, []) for index in range(len(contexts)) if index not in asked)
        for shared in (True, False):  # a text without a context shares nothing, and would keep others from it
            some = [question for question in questions if bool(question.common) is shared]
            lengths = [question.common if shared else max(map(len, question.rows)) for question in some]
            widest = max((len(row) - question.common for question in some for row in question.rows), default=1)
            how: Any = {
                "together": shared and self._caches,
                "rows": [len(question.rows) for question in some],
                "most": max(1, self._positions // (widest + shared * max(lengths, default=0) // SPREAD)),
            }
            for batch in batches(lengths, self.batch_tokens, spread=True, **how):
                answered = self._answer([some[position] for position in batch])
                # Half precision can overflow in one option; that no option has a number is a broken model.
                best = [next((value for value, _ in more if math.isfinite(value)), math.nan) for _, more in answered]
                self._refuse_not_finite(best, [index for index, _ in answered], names)
                yield from answered

    @torch.inference_mode()
    def _answer(self, questions: list[_Question]) -> list[tuple[int, list[tuple[float, int]]]]:
        """Score the options of questions whose contexts are of nearly one length."""
        owner = [place for place, question in enumerate(questions) for _ in question.rows]
        rows = [row for question in questions for row in question.rows]
        starts = [start for question in questions for start in question.starts]
        tried = self._quick.get(CONTINUED, True) and len(rows) > len(questions)
        common = min(question.common for question in questions) if tried else 0
        if not common:
            sums = self._sums(rows, starts)
        else:
            prefixes = torch.tensor([question.rows[0][:common] for question in questions], device=self.device)
            cache = self._run(prefixes, None, 0, 1)[1]
            cache.reorder_cache(torch.tensor(owner, device=self.device))
            sums = self._padded_sums(rows, starts, common, cache)
            if CONTINUED not in self._quick or (not self._padded and len({*map(len, rows)}) > 1):
                alone = self._sums(rows, starts)
                allowed = [self._rounding * (len(row) - start) for row, start in zip(rows, starts, strict=True)]
                self._try(CONTINUED, sums, alone, allowed)
                sums = alone
        found: list[tuple[int, list[tuple[float, int]]]] = [(question.index, []) for question in questions]
        for place, value, row, start in zip(owner, sums, rows, starts, strict=True):
            found[place][1].append((value, len(row) - start))
        return found

    @property
    def _rounding(self) -> float:
        """Nats a token that rounding can make."""
        return 1e-3 if self.network.dtype == torch.float32 else 0.1

    def _try(self, way: str, quick: Sequence[float], alone: Sequence[float], allowed: Sequence[float]) -> bool:
        """Keep whether a quick way gives the figures that texts alone give; warn if not."""
        off = [abs(a - b) for a, b in zip(quick, alone, strict=True)]
        self._quick[way] = not any(each > most for each, most in zip(off, allowed, strict=True))
        if not self._quick[way]:
            said = f"{self.name} does not {way} (off by {max(off):.2g} nats): it reads whole texts (slower)."
            warnings.warn(said, stacklevel=2)
        return self._quick[way]

    def shared_pseudo_log_likelihoods(
        self, pairs: Sequence[tuple[str, str]], names: Sequence[str] | None = None
    ) -> Iterator[tuple[int, tuple[float, float, int]]]:
        """Yield ``(index, (sum of the first, sum of the second, tokens in each sum))`` as batches finish.

        Tokens that both sentences share are found by ``difflib`` on the token ids, special tokens included. All but
        the first and the last shared one (CLS and SEP) are masked one at a time, in each sentence, and the
        log-probabilities of the right tokens are summed. Sentences that share nothing have sums and tokens of 0: check
        before dividing.

        Source: Nangia et al., EMNLP 2020, section 3, and ``metric.py`` of its release.
        """
        self._require(False, "pseudo-log-likelihoods")
        masked: list[tuple[tuple[int, int], list[int], int]] = []  # pair and number, ids, position of the mask
        ids = [self._known(self.tokenizer(list(pair)).input_ids) for pair in pairs]
        parts, counts = dict[int, int](), dict[int, int]()
        for index, (first, second) in enumerate(ids):
            for row in (first, second):
                self._check(len(row), f"A sentence of pair {name_of(names, index)}")
            shared = shared_positions(first, second)[1:-1]
            asked = [(first, at) for at, _ in shared] + [(second, at) for _, at in shared]
            counts[index], parts[index] = len(shared), len(asked)
            masked += [((index, number), row, at) for number, (row, at) in enumerate(asked)]
        yield from ((index, (0.0, 0.0, 0)) for index, count in counts.items() if not count)
        # Of one length: some networks mix padding into a text, whatever the mask says (ConvBERT, Nystromformer, FNet).
        batched = batches([len(row) for _, row, _ in masked], self.batch_tokens, equal=True)
        for index, values in gathered(self._each(masked, batched, self._masked, names), parts):
            own, other = math.fsum(values[: counts[index]]), math.fsum(values[-counts[index] :])
            yield index, (own, other, counts[index])

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[str],
        *,
        seed: int,
        max_new_tokens: int,
        greedy: bool = False,
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, str]]:
        """Yield ``(index, continuation)`` as batches finish; the continuation is without the prompt.

        Tokens are sampled at temperature 1 from the whole distribution (``greedy``: the likeliest is taken), whatever
        the checkpoint's generation settings are, until an end-of-sequence token or ``max_new_tokens``. A prompt's
        draws come from the seed and its own text alone, so neither its batch nor its place in the list, nor a run that
        continues after a stop, changes them; equal prompts get equal continuations. Only prompts of exactly equal
        length share a batch: none is padded.

        Raises :class:`~levelhead.types.DataError` for a prompt without tokens, or too long, by name.
        """
        self._require(True, "generation")
        rows = [row or list(self.beginning.alone) for row in self._encode(prompts)]
        for index, row in enumerate(rows):
            name = name_of(names, index)
            if not row:
                raise DataError(f"Prompt {name} has no tokens, and the tokenizer has no beginning-of-sequence token.")
            self._check(len(row) + max_new_tokens, f"Prompt {name} with {max_new_tokens} new tokens")
        draws = [uniform_draws(seed, prompt, max_new_tokens) for prompt in prompts]
        lengths = [len(row) + max_new_tokens for row in rows]
        for batch in batches(lengths, self.batch_tokens, most=self._positions, equal=True):
            uniforms = None if greedy else torch.from_numpy(np.stack([draws[index] for index in batch]))
            named = [name_of(names, index) for index in batch]
            new = self._continue([rows[index] for index in batch], uniforms, max_new_tokens, named)
            for index, tokens in zip(batch, new, strict=True):
                yield index, self._text(rows[index], tokens)

    def _continue(
        self, rows: list[list[int]], uniforms: Tensor | None, steps: int, names: Sequence[str] | None = None
    ) -> list[list[int]]:
        """Return new tokens for rows of one length; ``uniforms`` (rows, steps) in [0, 1), or None: the likeliest."""
        ids = torch.tensor(rows, device=self.device)
        ends = torch.tensor(sorted(self._ends), dtype=torch.long, device=self.device)
        ended = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        whole, cache, new = ids, None, []
        for step in range(steps):
            logits, cache = self._run(ids if cache is not None else whole, cache, whole.shape[1] - ids.shape[1], 1)
            if step == 1 and GENERATED not in self._quick and not self._goes_on(logits, whole):
                logits = self._run(whole, None, 0, 1)[0]
            cache = cache if self._quick.get(GENERATED, True) else None
            self._refuse_not_finite(logits[:, -1].float().logsumexp(-1).tolist(), range(len(rows)), names)
            if uniforms is None:
                token = logits[:, -1].argmax(-1)
            else:
                # In double precision on the CPU: neither batch nor device should decide which token a draw hits.
                mass = logits[:, -1].double().cpu().softmax(-1).cumsum(-1)
                token = torch.searchsorted(mass, uniforms[:, step : step + 1] * mass[:, -1:], right=True)[:, 0]
                token = token.clamp(max=mass.shape[1] - 1).to(self.device)
            new.append(token)
            ended |= torch.isin(token, ends)
            if ended.all():
                break
            ids = token[:, None]
            whole = torch.cat([whole, ids], dim=1)
        return [until(tokens, self._ends) for tokens in torch.stack(new, dim=1).tolist()] if new else [[] for _ in rows]

    def _goes_on(self, kept: Tensor, whole: Tensor) -> bool:
        """Say whether logits behind a kept text (rows, 1, vocabulary) are those of the ``whole`` tokens (rows, n)."""
        alone = self._run(whole[:1], None, 0, 1)[0][0, -1]
        likeliest = alone.topk(min(5, len(alone))).indices
        steps = [one.float().log_softmax(-1)[likeliest].tolist() for one in (kept[0, -1], alone)]
        # Logits of 16 bits are rounded themselves: bfloat16 knows 20 to 0.125.
        most = max(self._rounding, 2 * torch.finfo(self.network.dtype).eps * float(alone.abs().max()))
        return self._try(GENERATED, steps[0], steps[1], [most] * len(likeliest))

    def _text(self, prompt: list[int], new: list[int]) -> str:
        """Decode behind the prompt: alone, new tokens would lose the space before a first word."""

        def decoded(ids: list[int]) -> str:
            said = [token for token in ids if token not in self._unsaid]
            return str(self.tokenizer.decode(said, clean_up_tokenization_spaces=False))

        whole, before = decoded(prompt + new), decoded(prompt)
        return whole[len(before) :] if whole.startswith(before) else decoded(new)

    @cached_property
    def _unsaid(self) -> set[int]:
        """The special tokens that are no part of a text; marks of thoughts are, so that these can be cut."""
        special = zip(self.tokenizer.all_special_ids, self.tokenizer.all_special_tokens, strict=True)
        return {token for token, word in special if not any(word in mark for marks in THOUGHTS for mark in marks)}

    def _sums(self, rows: Sequence[list[int]], starts: Sequence[int]) -> list[float]:
        """Sum the log-probabilities of each row's tokens from its start on.

        Raises :class:`~levelhead.types.ConfigError` for a network that gives a padded row another sum than it alone.
        """
        sums = self._padded_sums(rows, starts)
        least = min(range(len(rows)), key=lambda place: len(rows[place]))
        if not self._padded and len(rows[least]) < max(map(len, rows)):
            (alone,) = self._padded_sums([rows[least]], [starts[least]])
            if abs(alone - sums[least]) > self._rounding * len(rows[least]):
                raise ConfigError(f"--model {self.name} cannot be scored: tokens behind a text change what it gives.")
            self._padded = True
        return sums

    def _padded_sums(
        self, rows: Sequence[list[int]], starts: Sequence[int], common: int = 0, cache: Any = None
    ) -> list[float]:
        """Return the sums of :meth:`_sums` from one batch, padded right; the first ``common`` are in the cache."""
        width = max(map(len, rows)) - common
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        counted = torch.zeros(len(rows), width, dtype=torch.bool)
        for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
            ids[place, : len(row) - common] = torch.tensor(row[common:])
            counted[place, start - common : len(row) - common] = True
        ids, counted = ids.to(self.device), counted.to(self.device)
        first = min(starts) - common  # at least 1: what predicts a token stands before it
        if first >= width:
            return [0.0] * len(rows)
        logits, _ = self._run(ids, cache, common, width - first + 1)
        logits = logits[:, :-1].float()
        values = logits.gather(-1, ids[:, first:, None])[..., 0] - logits.logsumexp(-1)
        return values.masked_fill(~counted[:, first:], 0.0).sum(-1, dtype=torch.float64).tolist()

    def _run(self, ids: Tensor, cache: Any, seen: int, keep: int) -> tuple[Tensor, Any]:
        """Return the logits of the last ``keep`` positions, and the cache with ``ids`` behind ``seen`` tokens.

        Nothing is masked: see the head of this file.
        """
        arguments: dict[str, Any] = {"input_ids": ids}
        if cache is not None:
            arguments["past_key_values"] = cache
        if self._caches:
            arguments["use_cache"] = True
            arguments["attention_mask"] = ids.new_ones(len(ids), ids.shape[1] + (seen if cache is not None else 0))
        if self._keeps:
            arguments["logits_to_keep"] = keep
        output = self.network(**arguments)
        return output.logits[:, -keep:], output.past_key_values if self._caches else None

    def _masked(self, rows: Sequence[list[int]], positions: Sequence[int]) -> list[float]:
        """Return the log-probability of the right token at each row's masked position."""
        ids = torch.tensor(rows)  # of one length
        every, place = torch.arange(len(rows)), torch.tensor(positions)
        right = ids[every, place].to(self.device)
        ids[every, place] = self.tokenizer.mask_token_id

        def gather(module: Any, arguments: Any, output: Any) -> Any:
            # The head then computes the logits of one position a row; the vocabulary is most of a small model.
            output.last_hidden_state = output.last_hidden_state[every, place][:, None]
            return output

        base = self.network.base_model
        hook = base.register_forward_hook(gather) if base is not self.network else None
        try:
            ids = ids.to(self.device)
            logits = self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        finally:
            if hook is not None:
                hook.remove()
        chosen = (logits[:, 0] if logits.shape[1] == 1 else logits[every, place]).float()
        return (chosen.gather(-1, right[:, None])[:, 0] - chosen.logsumexp(-1)).tolist()

    def _questions(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: Sequence[str] | None
    ) -> Iterator[_Question]:
        """Yield token ids of every context with its options; raise for what cannot be scored."""
        if len(contexts) != len(options):
            raise DataError(f"There are {len(contexts)} contexts and {len(options)} lists of options.")
        heads = self._encode(contexts)
        texts = [context + option for context, more in zip(contexts, options, strict=True) for option in more]
        wholes = iter(self._encode(texts))
        for index, (head, more) in enumerate(zip(heads, options, strict=True)):
            rows, starts, name = [], [], name_of(names, index)
            for number in range(len(more)):
                row = next(wholes)
                start = shared_prefix(head, row)
                if start == len(row):
                    raise DataError(f"Option {number} of item {name} has no tokens: there is nothing to score.")
                rows.append(row)
                starts.append(start)
            if 0 in starts:  # nothing stands before a text, so nothing predicts its first token
                if not self.beginning.alone:
                    raise DataError(
                        f"Option {starts.index(0)} of item {name} has nothing before it, and the tokenizer has neither "
                        "a beginning-of-sequence nor an end-of-sequence token: give it a context."
                    )
                rows, starts = [[*self.beginning.alone, *row] for row in rows], [start + 1 for start in starts]
            self._check(max(map(len, rows), default=0), f"Item {name} with its longest option")
            yield _Question(index, rows, starts)

    def _check(self, length: int, what: str) -> None:
        if self.longest is not None and length > self.longest:
            raise DataError(
                f"{what} has {length} tokens, and {self.name} takes {self.longest}: shorten or leave it out."
            )

    def _refuse_not_finite(self, values: Sequence[float], items: Sequence[int], names: Sequence[str] | None) -> None:
        """Raise :class:`~levelhead.types.LevelheadError` that names the items whose value is no finite number."""
        bad = [name_of(names, item) for value, item in zip(values, items, strict=True) if not math.isfinite(value)]
        if bad := list(dict.fromkeys(bad)):
            raise LevelheadError(
                f"{self.name} gives no finite number for {len(bad)} of the {len(set(items))} items asked together: "
                f"{listed(bad, 5)}. Nothing is scored. If its weights hold NaN, restore them; if numbers overflow, use "
                "--precision float32."
            )

    def _require(self, causal: bool, what: str) -> None:
        if self.causal is not causal:
            kinds = {True: "causal", False: "masked"}
            raise ConfigError(
                f"{self.name} is a {kinds[self.causal]} language model, and {what} need a {kinds[causal]} one."
            )

    @cached_property
    def beginning(self) -> Beginning:
        """The tokens that a text is read behind."""
        return Beginning.of(self.tokenizer)

    @cached_property
    def _ends(self) -> set[int]:
        settings = getattr(self.network, "generation_config", None)
        theirs = getattr(settings, "eos_token_id", None)
        ends = theirs if isinstance(theirs, list) else [theirs]
        return {end for end in [*ends, self.tokenizer.eos_token_id] if end is not None}

    def _unwarned(self, texts: Sequence[str]) -> list[list[int]]:
        """Return plain token ids; transformers would warn of texts that are refused, or read in windows, here."""
        options = {"add_special_tokens": False, "verbose": False}
        return self._known(self.tokenizer(list(texts), **options).input_ids) if texts else []

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids behind those that the tokenizer adds."""
        first = list(self.beginning.every)
        # A chat template writes these tokens itself.
        return [row if row[: len(first)] == first else [*first, *row] for row in self._unwarned(texts)]

    def _known(self, rows: list[list[int]]) -> list[list[int]]:
        """Return token ids, all of which the network has an embedding for."""
        highest = max((max(row, default=-1) for row in rows), default=-1)
        refuse_unknown_tokens(f"The tokenizer of --model {self.name}", highest, tokens_known(self.network))
        return list(rows)

    @property
    def _positions(self) -> int:
        """The number of positions whose logits are held at a time."""
        return max(1, LOGITS // self.network.config.get_text_config().vocab_size)
