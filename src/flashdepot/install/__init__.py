"""A wheel into a Python environment, checked before, proved there, or the environment as it was."""

from flashdepot.install.environment import Environment, active_python, probe_environment
from flashdepot.install.installation import Installed, install_wheel
from flashdepot.install.requirements import require_environment
from flashdepot.install.rollback import recover
from flashdepot.install.wheel_file import WheelFile

__all__ = [
    "Environment",
    "Installed",
    "WheelFile",
    "active_python",
    "install_wheel",
    "probe_environment",
    "recover",
    "require_environment",
]
