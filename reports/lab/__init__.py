"""The lab's runs as a user asks for them: which, on what, and where they go."""
