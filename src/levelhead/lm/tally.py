"""What benchmarks would ask of a model, counted beforehand: to say what a run will cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from levelhead.lm.base import Benchmark
from levelhead.lm.runner import take

CHARACTERS = 4  # a token, about


class Tally:
    """Counts what benchmarks would ask, in the place of a model: its log-likelihoods are 0, its texts empty."""

    causal = True

    def __init__(self) -> None:
        self.scored = self.generated = self.characters = self.new_tokens = 0

    def option_log_likelihoods(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], names: object = None
    ) -> Iterator[tuple[int, list[tuple[float, int]]]]:
        """Count options with their contexts."""
        for index, (context, more) in enumerate(zip(contexts, options, strict=True)):
            self.scored += len(more)
            self.characters += sum(len(context) + len(option) for option in more)
            yield index, [(0.0, 1)] * len(more)

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int, **_: object) -> Iterator[tuple[int, str]]:
        """Count prompts and the tokens that may come."""
        for index, prompt in enumerate(prompts):
            self.generated += 1
            self.characters += len(prompt)
            self.new_tokens += max_new_tokens
            yield index, ""

    def dialogues(self, prompts: Sequence[str], system: str = "") -> list[str]:
        """Return the prompts with the system prompt."""
        return [system + prompt for prompt in prompts]

    def __str__(self) -> str:
        """Say what is asked."""
        asked = [f"{self.scored:,} texts scored"] if self.scored else []
        if self.generated:
            asked.append(f"{self.generated:,} answers of up to {self.new_tokens // self.generated} tokens")
        tokens = f"about {self.characters / CHARACTERS:,.0f} prompt tokens at {CHARACTERS} characters a token"
        return f"{' and '.join(asked) or 'nothing'}, {tokens}"


def tally_of(benchmarks: Sequence[Benchmark], root: Path | None, limit: int | None) -> Tally:
    """Return what these benchmarks would ask."""
    count = Tally()
    for benchmark in benchmarks:
        for _ in benchmark.ask(cast(Any, count), take(benchmark, benchmark.read(root), limit)):
            pass
    return count
