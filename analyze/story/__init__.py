"""A flow's story as typed records: what changed when and why, and the facts that sum it up.

Text, HTML and JSON render these records and compute nothing themselves. Numbers are in the units
that the records declare; times are CLOCK_MONOTONIC [ns], with the run's zero beside them.
"""
