"""The machines that guests can be: what QEMU calls them, and where their parts are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """One machine: Debian's name of it, QEMU's program and the package that has it, options of its
    processor, and its serial console's device.
    """

    architecture: str
    qemu: str
    package: str
    options: tuple[str, ...]
    console: str


BOARDS = {
    board.architecture: board
    for board in (
        # erms says that copying single bytes is fast: QEMU does it byte by byte.
        Board("amd64", "qemu-system-x86_64", "qemu-system-x86", ("-cpu", "max,erms=off"), "ttyS0"),
        # Signing of pointers costs a software processor more than all else: this one has none.
        Board(
            "arm64",
            "qemu-system-aarch64",
            "qemu-system-arm",
            ("-machine", "virt", "-cpu", "cortex-a76"),
            "ttyAMA0",
        ),
    )
}
