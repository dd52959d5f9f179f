"""The numbers that papers report, and by what a flow's time is sliced for them."""
