"""Recipe -> compilations -> schedule -> objects -> library."""
