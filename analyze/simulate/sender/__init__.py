"""The simulated sender: Linux TCP's functions, and the congestion controls that they call."""
