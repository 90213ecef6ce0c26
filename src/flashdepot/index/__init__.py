"""A package index as static files: what pip, uv, ``flashdepot install`` and people need to find our wheels."""
