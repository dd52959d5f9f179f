"""Whole pages: about runs, a study, or a lake; put into one file and written."""
