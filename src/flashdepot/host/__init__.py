"""Facts about a machine. Looking never changes it."""

from flashdepot.host.probe import probe, runtime_facts, saved_host, wheel_facts, with_tools

__all__ = ["probe", "runtime_facts", "saved_host", "wheel_facts", "with_tools"]
