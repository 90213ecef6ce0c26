"""Finding or providing nvcc and its host compiler, and knowing what they can make."""
