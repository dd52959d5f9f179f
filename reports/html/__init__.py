"""The HTML report: one self-contained file, built from the store."""
