"""A wheel into a Python environment: checked first, verified there, or undone."""

from flashdepot.install.change import recover
from flashdepot.install.installation import Installed, install_wheel

__all__ = [
    "Installed",
    "install_wheel",
    "recover",
]
