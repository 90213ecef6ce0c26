from depot.conftest import small_disk

__all__ = ["small_disk"]
