"""The command line: one file a group of verbs."""

try:
    from levelhead.cli.app import app, main
except KeyboardInterrupt:  # Ctrl-C in the second that reading the code takes
    raise SystemExit(130) from None

__all__ = ["app", "main"]
