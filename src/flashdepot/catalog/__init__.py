"""What others have published: wheels of FlashAttention, listed with what is known of each without fetching it.

Typical usage::

    catalog = load_catalog(depot.root / CATALOG_FOLDER)
    windows = [wheel for wheel in catalog.wheels if wheel.platform == "win_amd64"]
"""

from flashdepot.catalog.load import CATALOG_FOLDER, Catalog, Collection, Listing, load_catalog

__all__ = ["CATALOG_FOLDER", "Catalog", "Collection", "Listing", "load_catalog"]
