"""Mutated input through every parser and every later command: ``python -m tests.fuzz --help``."""
