"""One way each to write a file, fetch one, unpack one and run a program. Everything else stands on these."""
