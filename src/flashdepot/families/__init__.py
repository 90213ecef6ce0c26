"""Lines of kernels, each with one source and one way to compile."""
