"""Fetching from package indexes and other servers, with the settings of pip and uv."""
