"""``python -m levelhead`` is the ``levelhead`` command."""

from levelhead.cli import main

main()
