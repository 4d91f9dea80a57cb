"""``python -m levelhead`` is the ``levelhead`` command."""

import os
import sys

# Python puts the folder that it is started in before everything else: a random.py there would be imported as random.
# Only os and sys are used to take it out, since pathlib would be imported from there. What runpy and the package
# import before this line cannot be prevented here; `python -P -m levelhead` prevents it.
if not sys.flags.safe_path and os.path.exists(sys.path[0]) and os.path.samefile(sys.path[0], "."):  # noqa: PTH110, PTH121
    del sys.path[0]

from levelhead.cli.app import main

main()
