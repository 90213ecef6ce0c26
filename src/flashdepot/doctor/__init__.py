"""What is wrong, or will be, and what mends it."""
