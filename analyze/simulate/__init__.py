"""Closed loop: the estimator drives senders over a simulated path."""
