"""What tests of commands share: run one, and read what it printed."""

from __future__ import annotations

import pytest

from levelhead.cli.app import main


def run(*arguments: object) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed since the last look, on one line."""
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())
