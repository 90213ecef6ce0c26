"""What a driver serves."""

from __future__ import annotations

from flashdepot.facts.drivers import newest_cuda
from flashdepot.model.environment import Environment
from flashdepot.model.target import Version


def served_cuda(facts: Environment) -> Version | None:
    """The newest CUDA that the driver serves, as seen or by its version; ``None`` where no driver is known."""
    if facts.driver_cuda is not None or facts.driver is None or facts.platform is None:
        return facts.driver_cuda
    return newest_cuda(facts.driver, facts.platform.system)
