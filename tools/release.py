"""Build the wheel and the source distribution, and try both as strangers would: `make release-check`.

Each step is printed with its time. The first that fails ends the check with exit status 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ["--constraint", str(ROOT / "constraints.txt")]
EXAMPLES = ["trainer_text.py", "own_network.py", "notebook_text.py", "notebook_vision.py"]
"""Run as scripts, from an empty folder, with the wheel and torch."""
QUICK = ["tests/metrics", "tests/auditing", "tests/report", "tests/test_examples.py", "tests/test_docs.py"]
"""What the source distribution must pass by itself: tests that open docs, results, recipes and benchmarks too."""


def step(title: str, *command: str, cwd: Path = ROOT) -> None:
    """Run one command, without the repository on Python's path, and say how long it took."""
    started = time.monotonic()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"LEVELHEAD_QUICK": "1"}
    done = subprocess.run(command, cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"{time.monotonic() - started:6.1f} s  {title}", flush=True)
    if done.returncode:
        print(done.stdout[-4000:])
        sys.exit(f"release check: {title}: exit status {done.returncode}")


def environment(folder: Path) -> tuple[str, str]:
    """Make an empty environment; return its Python and its ``levelhead``."""
    venv.create(folder, with_pip=True)
    return str(folder / "bin" / "python"), str(folder / "bin" / "levelhead")


def megabytes(folder: Path) -> float:
    """Return the size of all files in an environment, beside those of pip and setuptools."""
    found = (file for file in folder.rglob("*") if file.is_file())
    return sum(one.stat().st_size for one in found if not {"pip", "setuptools", "pkg_resources"} & {*one.parts}) / 1e6


def main() -> None:
    """Build, and try what was built."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the two distributions")
    parser.add_argument("--core", action="store_true", help="leave out what needs torch")
    asked = parser.parse_args()
    for old in asked.out.glob("levelhead-*"):
        old.unlink()
    step("build", sys.executable, "-m", "build", "--no-isolation", "--outdir", str(asked.out), str(ROOT))
    (wheel,), (source,) = asked.out.glob("*.whl"), asked.out.glob("*.tar.gz")
    step("twine check", sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, levelhead = environment(folder / "core")
        step("install the core", python, "-m", "pip", "install", "--quiet", "--no-compile", *CONSTRAINTS, str(wheel))
        print(f"{megabytes(folder / 'core'):6.0f} MB the core with all it needs")
        step("audit --example", levelhead, "audit", "--example", "--html", str(folder / "audit.html"), cwd=folder)
        if not asked.core:
            python, levelhead = environment(folder / "full")
            install = [python, "-m", "pip", "install", "--quiet", *CONSTRAINTS]
            step("install torch", *install, "torch")
            step("install the rest", *install, f"{wheel}[torch]")
            print(f"{megabytes(folder / 'full'):6.0f} MB with torch")
            step("--version", levelhead, "--version", cwd=folder)
            step("demo, two seeds", levelhead, "demo", "--seeds", "2", "--out", str(folder / "demo"), cwd=folder)
            with tarfile.open(source) as archive:
                archive.extractall(folder, filter="data")
            (inside,) = folder.glob("levelhead-*")
            for name in EXAMPLES:
                step(f"examples/{name}", python, "-P", str(inside / "examples" / name), cwd=folder)
            step("install what tests need", *install, f"{inside}[test]")
            quick = [python, "-m", "pytest", "-q", "-m", "not slow", *QUICK]
            step("quick tests of the source distribution", *quick, cwd=inside)
    print("release check: passed")


if __name__ == "__main__":
    main()
