"""The command line: one file a group of verbs."""

from levelhead.cli.app import app, main

__all__ = ["app", "main"]
