"""The content-addressed store of objects and libraries.

Look-ups are here; what a look-up does not need, such as :mod:`flashdepot.depot.actions` or :mod:`flashdepot.depot.gc`,
is imported by its name.
"""

from flashdepot.depot.libraries import StoredArtifact
from flashdepot.depot.store import Depot, DepotChoice, choose, open_depot

__all__ = ["Depot", "DepotChoice", "StoredArtifact", "choose", "open_depot"]
