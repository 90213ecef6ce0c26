"""Real environments to install into, as the tests of ``install`` have them."""

from install.conftest import command, environment, installer, template

__all__ = ["command", "environment", "installer", "template"]
