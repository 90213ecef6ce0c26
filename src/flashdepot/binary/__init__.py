"""Reading files that compilers and others built."""
