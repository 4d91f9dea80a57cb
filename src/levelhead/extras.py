"""What is not installed with the core, what needs it, and what to type."""

from __future__ import annotations

from levelhead.types import ConfigError

EXTRAS = {
    "torch": {"torch", "transformers", "accelerate", "safetensors", "PIL"},
    "app": {"gradio"},
    "hub": {"datasets"},
    "excel": {"openpyxl"},
}
"""Each extra of pyproject.toml that the core may meet, with the modules it brings."""


class MissingExtraError(ConfigError, ImportError):
    """A name or a command needs a package that ``pip install levelhead`` does not bring."""


def explained(error: ModuleNotFoundError, what: str) -> Exception:
    """Return the error that says what to type, or the error itself where the missing module is nobody's extra.

    Args:
        error: what the import raised.
        what: the name or the command that requested it.
    """
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return MissingExtraError(
                f"{what} needs {module}, which is not installed. Type: pip install 'levelhead[{extra}]'"
            )
    return error
