"""The simulated world: its records, its events in order of time, the path and the receiver."""
