"""Worlds as a user describes them, and their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....probes.base.errors import ScenarioError
from ....probes.base.plurals import plural
from ...bbr import params
from ...bbr.records import TCP_ECN_ECT_PERMANENT, TCP_ECN_LOW, TCP_ECN_OK
from ...bbr.variants.catalogue import VARIANTS
from . import world_records as rec

LOSS_BASED = {"cubic": rec.CC_CUBIC, "reno": rec.CC_RENO} | {
    "vegas": rec.CC_VEGAS,
    "dctcp": rec.CC_DCTCP,
}
APPS = {"bulk": rec.APP_BULK, "rate-limited": rec.APP_RATE} | {
    "fixed-size": rec.APP_SIZE,
    "on-off": rec.APP_ON_OFF,
}
CHANGES = {"rate": rec.CHANGE_RATE, "rtt": rec.CHANGE_RTT} | {
    "loss": rec.CHANGE_LOSS,
    "outage": rec.CHANGE_OUTAGE,
    "down": rec.CHANGE_DOWN,
    "acks": rec.CHANGE_ACKS,
}
# HZ of the kernels that the recordings come from: Debian's 250, the others' 1000.
HZ = {"v1": 250, "v2": 1000, "v3": 1000}
VERSION_OF = {"bbr": "v1", "bbr1": "v1", "bbr2": "v2", "bbr3": "v3"} | {name: name for name in HZ}
HOST_US = 50  # what hosts add to the round trip of a full segment where they were recorded
_MOST_BUFFER = 10**12
_MOST_US = 7200 * 10**6
# What a path's rate, round trip ... may change to, in CHANGES' units.
_MOST = {"rate": 1e11, "rtt": 1e7, "loss": 1.0} | dict.fromkeys(
    ("outage", "down", "acks"), _MOST_US
)


@dataclass(frozen=True)
class PathSetup:
    """The path: rate in bit/s on the wire, times in us, buffer in packets or bytes (0: no limit).

    `burst_bytes` is the token bucket's size, `marks_us` the time in the queue that draws a CE mark
    (0: none); with `peeks` that ends when a packet is the first, else when it leaves. `reorder` is
    the share of packets that overtake others: these wait `reorder_us` of the round trip (0: half of
    it); `reorder_again` is that of what follows one of these (0: as any), as with a correlation in
    netem. `in_skbs`: packets of one skb share their fate, as in a sender's netem; `whole_skbs`: it
    comes to the receiver in one piece where the bucket has room for it, as with GSO on a path of
    virtual devices. Hosts do something else every `busy_every_us` for `busy_us` on average (0: as
    world_loop.py has it). With `late_readers` a recorder has the receiver's CPU, too, see
    receiver.py; with `ack_us` all hosts are one CPU, which works so long on an ACK, see
    processor.py. With `host_bps` flows of one extra round trip share a link of this rate before the
    path, in whose queue TCP small queues hold them back; else the path takes an skb at once. A full
    segment has `mss` bytes after `headers` bytes on the wire. `unresolved`:
    the first packet waits for ARP.
    """

    rate_bps: int
    rtt_us: int
    limit_packets: int = 0
    limit_bytes: int = 0
    burst_bytes: int = 3028
    loss: float = 0.0
    in_skbs: bool = False
    whole_skbs: bool = False
    jitter_us: int = 0
    reorder: float = 0.0
    reorder_us: int = 0
    reorder_again: float = 0.0
    aggregation_us: int = 0
    policer: bool = False
    marks_us: int = 0
    peeks: bool = False
    unresolved: bool = False
    ecn: bool = False
    memory_bytes: int = 0
    mss: int = rec.MSS
    headers: int = rec.HEADERS
    busy_every_us: int = 0
    busy_us: int = 0
    late_readers: bool = False
    ack_us: int = 0
    host_bps: int = 0
    changes: tuple[tuple[int, str, float], ...] = ()

    @property
    def opening_us(self) -> int:
        """What the first SYN takes on an empty path, with the question for the neighbour."""
        return (1 + self.unresolved) * self.rtt_us


@dataclass(frozen=True)
class FlowSetup:
    """A flow; times in us from the start of the run. `parameters` are the parameters of its BBR."""

    cc: str
    start_us: int
    stop_us: int
    kind: str = "bulk"
    rate_bps: int = 0
    size_bytes: int = 0
    on_us: int = 0
    off_us: int = 0
    extra_rtt_us: int = 0
    cookie: bool = True  # iperf3's goes before BBR begins
    begins_us: int = 0  # how long after BBR the application does; 0: as iperf3
    hz: int = 0
    most_paced: int = 0  # SO_MAX_PACING_RATE [bytes/s]; 0: none
    ecn_low: bool = False  # v3's route feature, without which it takes no notice of marks
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""  # its name, or a user's file; `cc` is its base
    unseen: bool = False  # stands for others that a recording does not show
    other_receiver: bool = False  # the receiver's control is another, and does not ask for marks

    @property
    def slot(self) -> str | None:
        """Whose callbacks run: a version, or a variant; None for a loss-based control."""
        return self.variant or self.version

    @property
    def version(self) -> str | None:
        """v1, v2 or v3; None for a loss-based control. Raises ScenarioError: `cc` is not known."""
        if self.cc in LOSS_BASED:
            return None
        if self.cc not in VERSION_OF:
            known = ", ".join([*sorted({*VERSION_OF, *LOSS_BASED}), *VARIANTS])
            raise ScenarioError(f"there is no congestion control {self.cc!r:.40}", f"use {known}")
        return VERSION_OF[self.cc]


@dataclass(frozen=True)
class Setup:
    """A world to run."""

    path: PathSetup
    flows: tuple[FlowSetup, ...]
    duration_us: int
    seed: int = 0


def check_path(path: PathSetup) -> None:
    """Raise ScenarioError if such a path is impossible."""
    if not 8000 <= path.rate_bps <= 100_000_000_000:
        raise ScenarioError(f"a rate of {path.rate_bps} bit/s", "from 8 kbit/s to 100 Gbit/s")
    if not 10 <= path.rtt_us <= 10_000_000:
        raise ScenarioError(f"a round trip of {path.rtt_us} us", "from 10 us to 10 s")
    if not 88 <= path.mss <= 65_483:
        raise ScenarioError(f"segments of {plural(path.mss, 'byte')}", "from 88 to 65483")
    if not all(0 <= share <= 1 for share in (path.loss, path.reorder, path.reorder_again)):
        raise ScenarioError("a share that is not between 0 and 1", "write 1% or 0.01")
    if path.host_bps and not 8000 <= path.host_bps <= 100_000_000_000:
        raise ScenarioError(
            f"a sender's own link of {path.host_bps} bit/s", "from 8 kbit/s to 100 Gbit/s"
        )
    if path.loss >= 1:
        raise ScenarioError("a path that loses every packet", "write a loss below 100%")
    if not 0 <= path.jitter_us <= 10_000_000 or not 0 <= path.aggregation_us <= 10_000_000:
        raise ScenarioError("jitter or aggregation of more than 10 s", "write 2ms, for example")
    rates = [value for _, what, value in path.changes if what == "rate"]
    if any(not 8000 <= rate <= 100_000_000_000 for rate in rates):
        raise ScenarioError("a change to an impossible rate", "from 8 kbit/s to 100 Gbit/s")
    buffer = (path.limit_packets, path.limit_bytes)
    if min(buffer) < 0 or max(buffer) > _MOST_BUFFER:
        raise ScenarioError("an impossible buffer", "from 0, which is none, to 1 TB")
    if not all(_is_possible(*change) for change in path.changes):
        raise ScenarioError("an impossible change of the path", "times and values from 0 on")


def _is_possible(at_us: int, what: str, value: float) -> bool:
    """Whether a change comes at a time, and to a value, that a path may have."""
    return what in _MOST and 0 <= at_us <= _MOST_US and 0 <= value <= _MOST[what]


def check_setup(setup: Setup) -> None:
    """Raise ScenarioError if such a world is impossible."""
    check_path(setup.path)
    if not setup.flows or len(setup.flows) > 512:
        raise ScenarioError(plural(len(setup.flows), "flow"), "from 1 to 512")
    if not 0 < setup.duration_us <= _MOST_US:
        raise ScenarioError(
            f"a run of {setup.duration_us / 1e6:g} s", "more than 0 s, up to 7200 s"
        )


def parameters_of(flow: FlowSetup) -> dict[str, Any]:
    """The parameters of a flow's BBR: its version's, unless it has its own."""
    version = flow.version
    base = dict(flow.parameters) or dict(params.DEFAULTS[version or "v1"])
    if not base.get("HZ"):
        base["HZ"] = flow.hz or HZ[version or "v3"]
    return base


def asks_for_marks(flow: FlowSetup) -> bool:
    """Whether the flow's control wants the mark of each packet: all of its packets are ECT then."""
    if flow.cc == "dctcp":
        return True
    parameters = parameters_of(flow)
    asks = parameters.get("ecn_enable") if flow.version == "v2" else flow.ecn_low
    return bool(flow.version in ("v2", "v3") and asks and parameters.get("precise_ece_ack"))


def ecn_of(flow: FlowSetup) -> int:
    """How the receiver echoes CE marks: as its own congestion control asks.

    ECN_PRECISE: ECE tells the mark of each packet, as in DCTCP (RFC 8257); ECN_CLASSIC: ECE until
    CWR arrives (RFC 3168).
    """
    precise = asks_for_marks(flow) and not flow.other_receiver
    return rec.ECN_PRECISE if precise else rec.ECN_CLASSIC


def ecn_flags(flow: FlowSetup) -> int:
    """tp->ecn_flags as the handshake and BBR's init() leave them."""
    flags = TCP_ECN_OK
    if flow.version == "v3" and flow.ecn_low:
        flags |= TCP_ECN_LOW
    if flow.version and asks_for_marks(flow):
        flags |= TCP_ECN_ECT_PERMANENT[flow.version]
    return flags
