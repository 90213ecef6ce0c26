"""The content-addressed store of objects and libraries.

Look-ups are here; what is rare, :mod:`flashdepot.depot.verify` and :mod:`flashdepot.depot.gc`, is imported by its name.
"""

from flashdepot.depot.actions import ActionRecord, Output, action_key
from flashdepot.depot.artifacts import StoredArtifact
from flashdepot.depot.locks import HeldLock
from flashdepot.depot.match import DepotChoice, choose
from flashdepot.depot.store import Depot, open_depot

__all__ = [
    "ActionRecord",
    "Depot",
    "DepotChoice",
    "HeldLock",
    "Output",
    "StoredArtifact",
    "action_key",
    "choose",
    "open_depot",
]
