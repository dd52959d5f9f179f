"""Fill a lake of runs, read it as a store, and ask what a fleet asks."""
