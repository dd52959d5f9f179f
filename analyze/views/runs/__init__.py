"""Views of flows and runs: who sent, how the link was shared, what each rung can answer."""
