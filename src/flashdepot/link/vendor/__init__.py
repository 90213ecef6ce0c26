"""Libraries in a project's own tree, under its version control, for one target or several side by side."""
