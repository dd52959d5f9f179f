"""Layouts of struct bbr that were read from kernels' BTF: for programs written without a host."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from .bbr_layout import Layout
from .bbr_versions import SIZES
from .btf import Leaf

# bpftrace finds the place itself; bpftrace 0.17 cannot, and `collect` writes the number.
PRIV = "offsetof(struct inet_connection_sock, icsk_ca_priv)"
CB = "offsetof(struct sk_buff, cb)"


@cache
def layout(version: str) -> Layout:
    """The layout of v1 (mainline, Linux 6.1 to 7.2), google/bbr's v2 (v2alpha) or v3."""
    with Path(__file__).with_name("known.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["version"] == version]
    leaves = tuple(
        Leaf(
            row["path"],
            int(row["bit_offset"]),
            int(row["bitfield_size"]),
            int(row["size"]),
            row["signed"] == "1",
        )
        for row in rows
    )
    size = next(size for size, name in SIZES.items() if name == version)
    return Layout(leaves, size, PRIV)
