"""The flight recorder: the last seconds in bounded memory, written as a bundle when it matters."""
