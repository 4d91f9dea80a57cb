"""A page's blocks as a terminal shows them."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len

from levelhead.report import blocks, render
from levelhead.report.terminal import drawn
from levelhead.terminal import plain_text


def page(*shown: dict[str, Any], cautions: list[str] | None = None) -> dict[str, Any]:
    return blocks.page("Test", "A finding.", [blocks.part("A fold", shown)], title="t", cautions=cautions or [])


def wide(columns: int) -> dict[str, Any]:
    cells = [blocks.cell("1.0", "[0.1, 22.2]") for _ in range(columns)]
    heads = ["Group", *(f"Rate {at}" for at in range(columns))]
    return blocks.table("A caption", heads, [("g" * 30, cells), ("h", cells)])


def printed(*shown: dict[str, Any], width: int = 80, **options: Any) -> str:
    text = plain_text(drawn(page(*shown, **options)), width)
    assert max(map(cell_len, text.splitlines())) <= width
    return text


def test_intervals_stand_beside_figures_where_all_fit_and_else_below() -> None:
    assert "1.0 [0.1, 22.2]" in printed(wide(2))
    assert "[0.1, 22.2]" in printed(wide(4))
    assert "1.0 [0.1, 22.2]" not in printed(wide(4))


def test_columns_that_do_not_fit_stand_in_a_second_table_with_the_names() -> None:
    text = printed(wide(9))
    assert text.count("Group") == 3
    assert all(f"Rate {at}" in text for at in range(9))
    assert text.count("22.2]") == 18


def test_a_terminal_leaves_out_terms() -> None:
    assert "a term" not in printed(blocks.terms([("a term", "of the page")]))


def test_what_was_said_is_not_said_again() -> None:
    assert printed(blocks.bullets(["A finding.", "One."]), blocks.bullets(["One."])) == "A finding.\nOne.\n"


def test_an_undefined_figure_gives_its_reason_on_the_page_alone() -> None:
    table = blocks.table("c", ["Group", "Rate"], [("a", [blocks.undefined_cell("no rows")], "left out")])
    text = printed(table)
    assert "undefined" in text
    assert "no rows" not in text
    assert "left out" in text
    assert "no rows" in render(page(table))


def test_ten_warnings_are_printed_and_the_others_counted() -> None:
    text = printed(cautions=[f"caution {at}" for at in range(12)])
    assert text.count("Warning: ") == 10
    assert "And 2 more warnings like these" in text
