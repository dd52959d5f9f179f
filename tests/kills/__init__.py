"""``kill -9`` at random points of every command that writes: ``python -m tests.kills --help``."""
