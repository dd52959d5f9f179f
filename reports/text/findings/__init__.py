"""What diagnosis found, as text."""
