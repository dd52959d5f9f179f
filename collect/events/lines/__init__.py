"""Lines of an event stream: where they come from, the header's, and what is wrong with one."""
