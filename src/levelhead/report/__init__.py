"""One standalone HTML page for a run, a comparison, an audit, or two language models.

A page is made in two steps: ``one_page``, ``comparisons_page``, ``run_page`` and ``language_model_page`` summarise into
a plain JSON-able dict, and :func:`render` draws any of them. That way what a page says can be tested without HTML.
"""

from levelhead.report.page import render, write_page

__all__ = ["render", "write_page"]
