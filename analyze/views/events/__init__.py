"""Views of the kernel's events: each step, state, phase, round, decision, bound and limit."""
