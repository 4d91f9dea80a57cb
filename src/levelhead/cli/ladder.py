"""The command ``levelhead figure ladder``: what is left of a gap, by what each variant knew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.options import JsonFile, MinCount, Missing, MissingGroups, Runs, SplitName
from levelhead.storage import check_outputs, write_json
from levelhead.terminal import Terminal


def ladder_command(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="The picture, .png or .svg.")] = Path("ladder.png"),
    split: Annotated[SplitName, typer.Option(help="Which split's predictions to compare.")] = SplitName.test,
    baseline: Annotated[str, typer.Option(help="The variant whose gap is 100%.")] = "erm",
    min_count: MinCount = 10,
    missing: MissingGroups = Missing.leave_out,
    json_file: JsonFile = None,
) -> None:
    """Plot how much of the baseline's gap remains with each variant, ordered by what it knew about groups.

    Variants range from class labels only to the groups of all rows. Gaps are at the baseline's positive rate, so a
    shifted threshold has no effect. Hollow marks lose more than half a point of accuracy. Runs on several data sets
    are marks on the same lines.

    Example: levelhead figure ladder runs/ladder --out ladder.png
    """
    check_outputs({"--out": out, "--json": json_file}, runs=runs)
    from levelhead.bench.ladder import draw_ladder, steps_of
    from levelhead.bench.pareto import check_picture
    from levelhead.bench.tables import collect
    from levelhead.report.text import level_text

    check_picture(out, "accuracy", "equalized_odds")
    groups = collect(runs, split.value, min_count=min_count, missing=missing.words)
    comparisons = [group.compare(baseline, threshold="matched") for group in groups]
    steps = [step for one in comparisons for step in steps_of(one, one.title.partition(": ")[0])]
    note = "At the baseline's positive rate. Hollow: more than half a point of accuracy is lost."
    if len(comparisons) == 1:
        note += (
            f" Bars: {level_text(comparisons[0].table.level)} interval of the difference over {comparisons[0].sources}."
        )
    else:
        note += " Upright bars: the median over the tasks."
    title = comparisons[0].title if len(comparisons) == 1 else f"{len(comparisons)} tasks"
    draw_ladder(steps, out, title=title, notes=[note])
    if json_file is not None:
        write_json(json_file, {"baseline": baseline, "steps": [step.to_dict() for step in steps]})
    for caution in dict.fromkeys(caution for one in comparisons for caution in one.cautions):
        Terminal().print(caution, markup=False)
    Terminal().print(f"Wrote {out}: {len(steps)} variants", markup=False, soft_wrap=True)
