"""The three BBRs: what their functions are called, and which fields their probes record.

The fields come from the table (fields.py); those of struct bbr are not taken from it but from the
host's own BTF, all of them but padding, so that a patched struct is recorded whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from .fields import EXIT_FIELDS, recorded_in

# What main and init leave behind outside of struct bbr.
EXIT = [field.name for field in EXIT_FIELDS]


@dataclass(frozen=True)
class Version:
    """One BBR: its function names and the fields that its probes record.

    `tx_start` is the callback for CA_EVENT_TX_START only, where the kernel has one (Linux 7.1 and
    later): `cwnd_event` is "" then, unless the same BBR has both.
    """

    name: str
    main: str
    init: str
    set_state: str
    ssthresh: str
    undo_cwnd: str
    cwnd_event: str
    skb_marked_lost: str | None
    module: str
    tx_start: str = ""

    def names(self, place: str) -> list[str]:
        """Fields of this version in the rows of `place` (fields.ROWS), in the table's order."""
        return [field.name for field in recorded_in(place) if self.name in field.versions]

    @property
    def rate_sample(self) -> list[str]:
        """Fields of struct rate_sample."""
        return self.names("main")

    @property
    def socket(self) -> list[str]:
        """Fields of the socket."""
        return self.names("entry")

    @property
    def skb(self) -> list[str]:
        """Fields of a packet that is marked lost or sent again."""
        return self.names("skb")

    @property
    def functions(self) -> list[str]:
        """The callbacks' symbols."""
        names = [self.main, self.init, self.set_state, self.ssthresh, self.undo_cwnd]
        names += [self.cwnd_event, self.tx_start, self.skb_marked_lost or ""]
        return [name for name in names if name]


def _version(name: str, prefix: str, marked_lost: str | None, module: str) -> Version:
    return Version(
        name=name,
        main=f"{prefix}_main",
        init=f"{prefix}_init",
        set_state=f"{prefix}_set_state",
        ssthresh=f"{prefix}_ssthresh",
        undo_cwnd=f"{prefix}_undo_cwnd",
        cwnd_event="bbr_cwnd_event",  # v2 kept v1's name for this one
        skb_marked_lost=marked_lost,
        module=module,
    )


_ALL = (
    _version("v1", "bbr", None, "tcp_bbr"),
    _version("v2", "bbr2", "bbr2_skb_marked_lost", "tcp_bbr2"),
    _version("v3", "bbr", "bbr_skb_marked_lost", "tcp_bbr"),
)
VERSIONS = {version.name: version for version in _ALL}

# cwnd_event was split and renamed upstream; the new function means event 0 (TX_START) only.
TX_START = "bbr_cwnd_event_tx_start"

# struct bbr's size tells the versions apart; their names do not (v3 registers as "bbr").
SIZES = {104: "v1", 216: "v2", 144: "v3"}
