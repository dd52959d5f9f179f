"""The compiled loop that makes events of rows, and the memory that it works in."""
