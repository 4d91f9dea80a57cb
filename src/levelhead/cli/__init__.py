"""The command line: one file a group of verbs."""

from levelhead.cli.app import app, console, main

__all__ = ["app", "console", "main"]
