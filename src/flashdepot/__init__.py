"""flashdepot: FlashAttention fetched in seconds instead of compiled for twenty minutes."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than --version to answer
if TYPE_CHECKING:
    from flashdepot.api.client import Client

__version__ = "0.1.0"

__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from flashdepot.api.client import Client  # noqa: PLC0415  (the version costs no other import)

        return Client
    raise AttributeError(f"module 'flashdepot' has no attribute '{name}'")
