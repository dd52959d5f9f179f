"""Views of captured packets, and of the path that they took."""
