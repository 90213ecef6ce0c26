"""One way each to write a file, to know one by its bytes, to lock one, and to read what others made."""
