"""Fetching from package indexes and other servers, with the settings that the user has already given to pip or uv."""
