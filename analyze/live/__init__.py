"""The estimator along a recording that is under way: events, decisions and flows as they happen."""
