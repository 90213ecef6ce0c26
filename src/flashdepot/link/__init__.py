"""A library into other people's builds: CMake, pkg-config, cargo, plain flags, or a project's own tree."""
