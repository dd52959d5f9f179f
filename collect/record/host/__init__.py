"""The host that records: its kernel, its bpftrace, its tools, and what they allow."""
