"""Saying what is wrong: with a machine, and with a log."""
