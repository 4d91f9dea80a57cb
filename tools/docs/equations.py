"""Equations become MathML while the site is built: browsers draw it by themselves, without scripts or fonts."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves of $...$ and of $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
BEFORE = (
    (re.compile(r"\\!"), ""),  # a negative space, which the converter would print
    (re.compile(r"\\Big(?![a-z])"), r"\\big"),
    (re.compile(r"\\mathrm\{(\w+)\}"), r"\\text{\1}"),  # a word, not a product of letters; one letter stays upright
)
AFTER = (('<mo stretchy="false">&#x0007C;</mo>', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>'),)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Replace the equations of a page; an unknown command is an error, not a gap in a formula."""

    def drawn(match: re.Match[str]) -> str:
        latex = html.unescape(match[2]).strip()
        for pattern, known in BEFORE:
            latex = pattern.sub(known, latex)
        mathml: str = convert(latex, display="block" if match[1] == "div" else "inline")
        if "\\" in html.unescape(mathml):
            raise ValueError(
                f"{page.file.src_uri}: latex2mathml does not know a command of {latex!r}. Write it plainer."
            )
        for theirs, ours in AFTER:
            mathml = mathml.replace(theirs, ours)
        return f'<div class="equation">{mathml}</div>' if match[1] == "div" else mathml

    return EQUATION.sub(drawn, content)
