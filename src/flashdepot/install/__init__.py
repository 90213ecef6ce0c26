"""A wheel into a Python environment: checked first, verified there, or undone."""

from flashdepot.install.change import recover
from flashdepot.install.installation import Installed, install_wheel
from flashdepot.install.sources import WheelFile

__all__ = [
    "Installed",
    "WheelFile",
    "install_wheel",
    "recover",
]
