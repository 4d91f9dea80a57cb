"""A language model that answers by functions, for tests of what is asked and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from levelhead.types import Estimate

Options = list[tuple[float, int]]


class Speaker:
    """Scores texts by ``score(context, option)``, and continues by ``say(prompt, seed)``; what it was asked is kept.

    The last text is answered first. ``more`` replaces attributes and methods.
    """

    causal, has_chat_template, longest, beginning = True, False, None, "Texts begin somehow."

    def __init__(
        self,
        score: Callable[[str, str], tuple[float, int]] = lambda context, option: (-1.0, 1),
        say: Callable[[str, int], str] = lambda prompt, seed: "",
        name: str = "speaker",
        **more: Any,
    ) -> None:
        self.score, self.say, self.name = score, say, name
        self.asked: list[Any] = []
        vars(self).update(more)

    def fingerprint(self) -> str:
        return self.name

    def options(self, context: str, more: Sequence[str]) -> Options:
        return [self.score(context, one) for one in more]

    def option_log_likelihoods(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: Sequence[str]
    ) -> Iterator[tuple[int, Options]]:
        assert self.causal
        assert len(names) == len(contexts) == len(options)
        for index in reversed(range(len(contexts))):
            self.asked.append((contexts[index], list(options[index])))
            yield index, self.options(contexts[index], options[index])

    def shared_pseudo_log_likelihoods(self, pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> Iterator[Any]:
        assert not self.causal
        assert len(names) == len(pairs)
        for index in reversed(range(len(pairs))):
            self.asked.append(pairs[index])
            (first, tokens), (second, _) = (self.score("", one) for one in pairs[index])
            yield index, (first, second, tokens)

    def window_log_likelihoods(self, texts: Sequence[str], stride: Any, names: Sequence[str]) -> Iterator[Any]:
        yield from ((index, (-2.0 * len(text), len(text))) for index, text in enumerate(texts))

    def generate(self, prompts: Sequence[str], *, seed: int, names: Sequence[str], **how: Any) -> Iterator[Any]:
        for index in reversed(range(len(prompts))):
            self.asked.append((prompts[index], {"seed": seed, **how}))
            yield index, self.say(prompts[index], seed)


def ends(estimate: Estimate) -> tuple[float, float, float]:
    """The value and the interval of an estimate."""
    return estimate.value, estimate.low, estimate.high
