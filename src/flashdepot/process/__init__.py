"""Running programs: each ends when this process does, and sees no more than it needs."""
