"""A wheel into a Python environment, proved there, or the environment as it was."""

from flashdepot.install.environment import Environment, active_python, probe_environment
from flashdepot.install.installation import Installed, install_wheel
from flashdepot.install.requirements import require_environment

__all__ = [
    "Environment",
    "Installed",
    "active_python",
    "install_wheel",
    "probe_environment",
    "require_environment",
]
