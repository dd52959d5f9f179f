"""Runs in the formats of other tools: one module per format, all from the same story and views."""
