"""What is recorded beside the events: packets, the queue, and what ss says."""
