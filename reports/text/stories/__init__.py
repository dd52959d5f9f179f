"""A flow's story as text and as JSON."""
