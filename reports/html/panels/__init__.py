"""What each chart of the page shows, as data: signals in panels, their sources and colours."""
