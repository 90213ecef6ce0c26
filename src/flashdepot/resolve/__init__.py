"""From what somebody asks for to a library that serves it: a stored one, or one that is built."""
