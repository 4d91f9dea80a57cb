"""Write a page: how many one-place changes of the code the tests notice, and which they do not.

    make mutants                          # mutmut run, then this
    python benchmarks/mutants.py [FOLDER ...] [--record]

The page is build/measured/mutants.md, or with --record benchmarks/mutants.md.

A folder (``mutants`` if none is named) is one that ``mutmut run`` leaves behind. What the page says of other files
stays: one run need not be about all. Killed is a mutant for which a test fails, or ends in time no more. A survivor is
listed with its change; :data:`REASONS` says, by the change, why no test can or need notice it. What has no reason there
is a gap in the tests, and is listed as one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from measure import MEASURED
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import change_cwd

from levelhead.storage import write_text

PAGE = Path(__file__).with_suffix(".md")
SOURCE = PAGE.parents[1] / "src" / "levelhead"
GAP = "a gap in the tests"
KILLED = {"killed", "timeout", "segfault"}
# A pattern that is looked for in "function: before -> after", and why no test can notice that change. The first that
# fits counts.
REASONS: tuple[tuple[str, str], ...] = (
    (r"zip\(.*-> .*(strict=None|strict=False|, \))", "the lists are of one length, whoever calls"),
    (r"(persistent|bias|keepdim|skipna)=False.* -> .*\1=None", "None counts as False here"),
    (r"reshape\(.*-1.* -> .*-2", "NumPy takes any negative size for the one that is left"),
    (r"soft_cross_entropies|scale_slopes|AlignmentHead.*normalize", "the last axis of two is axis 1, and the default"),
    (
        r"(dtype=(float|object|np\.\w+)|asarray\(\w+, (np\.)?float|astype\(float).* -> ",
        "the same numbers come out of that type",
    ),
    (r"\.to\([\w.]+\).* -> .*\.to\(None\)", "arithmetic brings them to that type by itself"),
    (r"_statistics: .* -> .*remembered\(None", "arithmetic brings them to that type by itself"),
    (r"readout_logits.*(cpu|squeeze|autocast)", "seen on a GPU alone: on the CPU both ways give the same numbers"),
    (r"ranking: Ranking", "what is neither 'per_head' nor 'mean_logit' is ranked by mean probability"),
    (r"masked_fill|itself, 0\.0", "the diagonal is left out again where positives are summed"),
    (r"torch\.where\((total > 0|varies).* -> .*, 2\)", "the other branch is taken wherever this number would matter"),
    (r"_apply: ", "there are no children, and what is moved is moved either way"),
    (r"centre_again: .*>= 1", "a single process gathers what it has"),
    (r"(centre_again|of_batch): .*clamp\(min=2", "of a single row all deviations are 0"),
    (r"centre_again: .*(expand|keepdim|squeeze)", "broadcasting gives the same counts"),
    (r"of_batch: .*_root", "the variance plus eps is 0 only where eps is, and eps is then 0"),
    (r"of_rows: .*count\.sum", "there is one axis"),
    (r"_known_updated = None", "None counts as False here"),
    (r"score\.sort\(descending", "it is the default"),
    (r"sums\[:, :3\]", "a ratio reads two columns"),
    (r"measures < \{", "two measures are refused before"),
    (r"_area: .*ppf\(\(1 - level", "the sign of z is squared away"),
    (r"_score_interval: .*brentq", "at 0 and 1 the root that is found is the end itself"),
    (r"smooth=None", "None counts as False here"),
    (r"argsort.* -> .*argsort\(-b\.value, \)", "of equal contrasts any may come first"),
    (
        r"(_difference_high|largest_gap): .*out=None",
        "numbers of spread 0 are 0, as memory that nobody has set mostly is",
    ),
    (r"(largest_alone|_farthest): .*take_along_axis", "the last axis is the default"),
    (r"_Outward\.of: .*\+1", "axis 1 is the last axis of two"),
    (r"_shuffle: .*10\*\*", "both ways deal by the same law"),
    (r"_shuffle: .*shape\[2\]", "there are as many predictions as labels"),
    (r"_ranked: ", "a metric is undefined for all methods or for none"),
    (r"critical: .*else 1\.0", "without variance no multiple of it matters"),
    (r"p_value: .* < t", "equality has probability 0"),
    (r"len\(z\) (<= 2|< 3)", "two rows of one class have no other to be told from, so that the loss is 0 either way"),
    (r"_statistics: .*remembered", "more positions are read than are needed"),
    (r"classes = .*\+ 1 -> .*\+ 2", "a class more that no row has"),
    (r"range\(60\)", "bisection has converged before"),
    (r"rising = .* < .* -> .* <= ", "equality has probability 0"),
    (r"high - exact\.min\(\)", "the search begins lower, and ends at the same place"),
    (r"scaled\[1\] \+ 1e-8", "of the size of rounding"),
    (r"40\.0", "beyond 40 deviations both are 0 and 1 to the last digit"),
    (r"- 1\) > 1e-6.* -> .*>= 1e-6", "no sum of shares lies there but by rounding"),
    (r"units \|= ", "there is nothing in it yet"),
    (r"encoding=", "it is the default"),
    (r"SCALES\.get", "it is not used where a norm has no scale"),
    (r"TINY", "errors of that size are those of rounding"),
    (r"infer_dtype", "columns of one kind give the same values row by row, only slower"),
    (r"np\.full\(len\(array\), -1", "whole numbers are int64 by default"),
    (r"true_positives: chosen", "labels and predictions have one vocabulary"),
    (r"uncovered = max", "there is always a score"),
    (r'einsum\(.* -> .*einsum\("[A-Z]', "the names of the letters do not matter"),
    (r"errstate", "it silences a warning alone"),
    (r"seed: int = 0.* -> .*seed: int = 1", "any seed is as good as another"),
    (r"(_fit_em|_fit_closed): .*shape\[1\]|_fit_em: .*axis1", "every proxy names all groups"),
    (r"_bounds: .*np\.clip", "differences of rates lie between -1 and 1"),
    (r"_plain_parts: .*0\.0, 1\.0, plain", "a proxy of weight 0 moves nothing"),
    (r"JointRow\.verdict: .*< 0.* -> .*<= 0", "an interval that leaves out 0 has no value of 0"),
    (r"_parity_reach: .*1 \+ p", "clipped to the interval, it is an end that is looked at anyway"),
    (r"_best_start: ", "the best of five starts ends at the same place"),
    (r"(MOST_CELLS|MOST_PARTS).*>=", "a table of a gigabyte would have to be made"),
    (r"_kind: ", "a name for the kind that is compared with itself alone"),
)


class Survivor(NamedTuple):
    """One mutant that no test noticed: its function, and the changed lines before and after."""

    function: str
    before: str
    after: str

    @property
    def reason(self) -> str:
        """Why it was not noticed."""
        change = f"{self.function}: {self.before} -> {self.after}"
        return next((reason for pattern, reason in REASONS if re.search(pattern, change)), GAP)


def survivor(name: str, path: str) -> Survivor:
    lines = get_diff_for_mutant(name, path=path).splitlines()
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    before, after = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
    function = (
        name.rpartition("__mutmut_")[0].rpartition(".")[2].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    )
    return Survivor(function, before, after)


class File(NamedTuple):
    """What the page says of a source file: its mutants, how many were run and killed, and a line a survivor."""

    mutants: int
    run: int
    killed: int
    lines: list[str]

    @classmethod
    def of(cls, mutants: int, run: int, survivors: list[Survivor]) -> File:
        """List the survivors of a run, gaps in the tests last."""
        lines = []
        for one in sorted(survivors, key=lambda one: (one.reason == GAP, one.reason, one.function)):
            before, after = changed_part(one.before, one.after)
            lines.append(f"- {one.reason}: {code(before)} → {code(after)} in `{one.function}`, {code(one.before)}")
        return cls(mutants, run, run - len(survivors), lines)

    @property
    def row(self) -> str:
        """The file's figures as cells of a table."""
        return f"{self.mutants:,} | {self.run:,} | {self.killed:,} | {self.killed / self.run:.1%}"


def kept(text: str) -> dict[str, File]:
    """Read what the page says of files that are still there."""
    lists = {part.partition("\n")[0]: re.findall("^- .*", part, re.MULTILINE) for part in text.split("\n## ")[1:]}
    rows = re.findall(r"^\| `(.*?)` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    return {
        path: File(*(int(number.replace(",", "")) for number in numbers), lists.get(path, []))
        for path, *numbers in rows
        if (SOURCE / path).exists()
    }


def read(folder: Path) -> dict[str, File]:
    """Read what a run in ``folder`` left behind, by source file."""
    found = {}
    for meta in sorted(folder.rglob("*.py.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        status = {name: status_by_exit_code[code] for name, code in codes.items() if code is not None}
        if not status:
            continue
        path = str(meta.relative_to(folder)).removesuffix(".meta")
        with change_cwd(folder.parent):
            survivors = [survivor(name, path) for name, one in status.items() if one not in KILLED]
        found[path.removeprefix("src/levelhead/")] = File.of(len(codes), len(status), survivors)
    return found


def page(found: dict[str, File]) -> str:
    """Return the page in Markdown."""
    mutants, run, killed = (sum(column) for column in list(zip(*found.values(), strict=True))[:3])
    lines = [line for file in found.values() for line in file.lines]
    gaps = sum(line.startswith(f"- {GAP}:") for line in lines)
    text = [
        "# One-place changes that the tests notice",
        "",
        "Written by `benchmarks/mutants.py` from runs of [mutmut](https://github.com/boxed/mutmut), which changes one",
        "operator, number, text or argument at a time and runs the nearest tests (`make mutants`). Killed is a mutant",
        "for which a test fails or ends in time no more. Not mutated: the words of errors and warnings, constants",
        "outside functions, functions with a decorator. Of some files a sample was run: those whose number ends in",
        "3 or 7.",
        "",
        "| file | mutants | run | killed | share |",
        "|---|---:|---:|---:|---:|",
        *(f"| `{path}` | {file.row} |" for path, file in found.items()),
        f"| all | {File(mutants, run, killed, lines).row} |",
        "",
        f"Of the {len(lines)} survivors, {gaps} are gaps in the tests; no test could notice the others, for the",
        "reason given.",
    ]
    for path, file in found.items():
        text += ["", f"## {path}", "", *file.lines] if file.lines else []
    return "\n".join(text) + "\n"


def changed_part(before: str, after: str) -> tuple[str, str]:
    """Return what differs between two lines, with a little of what stands before it, in whole words."""

    def alike(one: str, other: str) -> int:
        return next(
            (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )

    start = alike(before, after)
    end = alike(before[start:][::-1], after[start:][::-1])
    start = max(0, start - 10)
    while start and re.match(r"[\w.]", before[start - 1]):
        start -= 1
    while end and re.match(r"[\w.]", before[-end]):
        end -= 1
    return before[start : len(before) - end], after[start : len(after) - end]


def code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else "nothing"


def main(folders: list[str]) -> None:
    found = kept(PAGE.read_text(encoding="utf-8"))
    out = PAGE if "--record" in folders else MEASURED / PAGE.name
    for folder in [one for one in folders if one != "--record"] or ["mutants"]:
        found |= read(Path(folder).resolve())
    write_text(out, page(dict(sorted(found.items()))))
    print(f"{out}: {len(found)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
