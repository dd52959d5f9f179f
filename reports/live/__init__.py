"""Flows while they run: a table of them, a line per change, metrics, the flight recorder."""
