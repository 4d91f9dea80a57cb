"""``python -m levelhead`` is the ``levelhead`` command."""

from levelhead.cli.app import main

main()
