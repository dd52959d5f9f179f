"""The testbed: a dumbbell of network namespaces for one run.

    s --- a --- r --- d          s: senders    a: access    r: bottleneck    d: receivers

Data: s -> a (netem: random loss, reordering, outages) -> r (tbf or htb: rate and buffer, AQM; or
a policer) -> d. ACKs: d -> r (netem: the whole delay) -> a (netem: a flow's extra delay) -> s.

Nothing is queued in s, so TCP Small Queues see what they would see on a fast NIC, but where the
scenario gives the links from s a rate of their own (tbf); loss is drawn
where packets are single, so no TSO burst is dropped as one; the delay line holds ACKs, so it never
competes with the bottleneck's buffer. Offloads are off on the whole path. Flows that have the same
extra delay share a link from s to a; each link has its own address, and so has its end in d.

All addresses and settings are inside the namespaces; the host's own are never touched.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...probes.base.errors import HostError
from .host import bbr_versions, call, quietly
from .lab_points import LabPoint, PathChange, PathSpec
from .units import PACKET_BYTES

PREFIX = "bbrlab-"
SENDERS, ACCESS, ROUTER, RECEIVERS = (PREFIX + name for name in ("s", "a", "r", "d"))
NAMESPACES = (SENDERS, ACCESS, ROUTER, RECEIVERS)
BOTTLENECK = f"{ROUTER}:rd"
# Delay lines hold packets, not time: room for the ACKs of any path in the catalogue.
LINE = ("limit", "1000000")
# Bytes that the senders' own links may hold.
_HOST_LIMIT = "1000000000"
# TCP's own defaults below the maximum, as documented in ip-sysctl.rst.
RMEM, WMEM = "4096 131072 {}", "4096 16384 {}"
# Unsent bytes that a sender of a fixed size may hold: iperf3 ends with the last write, so this
# much and that write are not waited for.
NOTSENT = 16384
BBR2 = Path("/sys/module/tcp_bbr2/parameters")
ECN_OF_BBR2 = {"ecn_enable": "1", "ecn_max_rtt_us": "0"}


def extra_delays(point: LabPoint) -> list[int]:
    """Return the extra delays, in us, in the order of their links."""
    return sorted({flow.extra_rtt_us for flow in point.flows})


def receiver(point: LabPoint, extra_rtt_us: int) -> str:
    """Return the address in d of flows with this extra delay."""
    return _addresses(point.path.ip, extra_delays(point).index(extra_rtt_us))[2]


def _addresses(ip: int, link: int) -> tuple[str, str, str]:
    """Addresses of link number `link`: its end in s, its end in a, and its receiver in d."""
    if ip == 6:
        return f"fd77:1:{link:x}::2", f"fd77:1:{link:x}::1", f"fd77:3::{link + 2:x}"
    return f"10.77.{link}.2", f"10.77.{link}.1", f"10.79.{link >> 8}.{(link & 255) + 2}"


@contextmanager
def built(point: LabPoint) -> Iterator[None]:
    """Build the testbed for a run and remove it afterwards, whatever happens.

    Raises:
        HostError: its namespaces are there already, or the kernel refuses a part.
    """
    held = [name for name in existing() if name in NAMESPACES]
    if held:
        raise HostError(
            f"the testbed's namespaces exist already: {', '.join(held)}",
            "another lab is running, or one was killed: bbrscope lab clean",
        )
    try:
        with heeding_ecn(point):
            _build(point)
            yield
    finally:
        clean()


@contextmanager
def heeding_ecn(point: LabPoint) -> Iterator[None]:
    """Have BBRv2 heed ECN on a path with it, whatever its RTT, as google/bbr's nsperf does.

    Sets tcp_bbr2's module parameters ecn_enable to 1 and ecn_max_rtt_us to 0 (no limit).

    Its parameters are the kernel's, not a namespace's, so they are put back afterwards. BBRv3 goes
    by a feature of the route (`ecn_low`).

    Raises:
        HostError: the kernel refuses a parameter.
    """
    wanted = ECN_OF_BBR2 if point.path.ecn and any(f.cc == "bbr2" for f in point.flows) else {}
    old: dict[Path, str] = {}
    try:
        for name, value in wanted.items():
            path = BBR2 / name
            try:
                old[path] = path.read_text()
                path.write_text(value)
            except OSError as error:
                raise HostError(f"cannot set {path}: {error.strerror}") from error
        yield
    finally:
        for path, value in old.items():
            path.write_text(value)


def existing() -> list[str]:
    """Return the lab's namespaces that exist."""
    names = [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line]
    return [name for name in names if name.startswith(PREFIX)]


def clean() -> list[str]:
    """Remove every namespace of the lab with all that runs in it; return their names."""
    leftovers = existing()
    for name in leftovers:
        for pid in call("ip", "netns", "pids", name).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
    for name in leftovers:
        quietly("ip", "netns", "del", name)
    # A namespace ends only when the last process in it has ended.
    deadline = time.monotonic() + 5
    while existing() and time.monotonic() < deadline:
        time.sleep(0.05)
    return leftovers


def _build(point: LabPoint) -> None:
    ip, link = f"-{point.path.ip}", point.path
    for name in NAMESPACES:
        call("ip", "netns", "add", name)
        call("ip", "-n", name, "link", "set", "lo", "up")
    links = [(SENDERS, f"s{n}", ACCESS, f"a{n}") for n in range(len(extra_delays(point)))]
    for left, near, right, far in (
        *links,
        (ACCESS, "ar", ROUTER, "ra"),
        (ROUTER, "rd", RECEIVERS, "dr"),
    ):
        call(
            *("ip", "link", "add", near, "netns", left, "type", "veth"),
            *("peer", "name", far, "netns", right),
        )
        for name, device in ((left, near), (right, far)):
            call("ip", "-n", name, "link", "set", device, "up")
            _in(name, "ethtool", "-K", device, "gso", "off", "tso", "off", "gro", "off")
    _number(point, ip)
    _heed_ecn_low(point)
    _settings(point)
    for number, extra in enumerate(extra_delays(point)):
        if link.host_bps:
            # TCP small queues keep this queue short, whose limit is not to be met.
            _tc(SENDERS, "add", f"s{number}", "tbf", *_rate(link.host_bps), "limit", _HOST_LIMIT)
        if extra:
            _tc(ACCESS, "add", f"a{number}", "netem", *LINE, "delay", f"{extra}us")
    if link.loss or link.reorder or any(c.what in ("loss", "outage") for c in point.changes):
        _tc(ACCESS, "add", "ar", "netem", *_data(link, link.loss))
    _tc(ROUTER, "add", "ra", "netem", *_acks(link, link.rtt_us))
    _bottleneck(link)


def _in(namespace: str, *words: str) -> str:
    return call("ip", "netns", "exec", namespace, *words)


def _tc(namespace: str, verb: str, device: str, *words: str) -> None:
    call("tc", "-n", namespace, "qdisc", verb, "dev", device, "root", *words)


def _number(point: LabPoint, ip: str) -> None:
    """Give every device its address, and every namespace its routes."""
    six = point.path.ip == 6
    mid, near = ("fd77:2::", "fd77:3::1") if six else ("10.78.0.", "10.79.0.1")
    wide, narrow = ("64", "128") if six else ("24", "32")
    end = "64" if six else "16"
    senders, receivers = ("fd77:1::/32", "fd77:3::/64") if six else ("10.77.0.0/16", "10.79.0.0/16")
    nodad = ("nodad",) if six else ()

    def address(name: str, device: str, text: str) -> None:
        call("ip", ip, "-n", name, "addr", "add", text, "dev", device, *nodad)

    def route(name: str, *words: str) -> None:
        call("ip", ip, "-n", name, "route", "add", *words)

    address(ACCESS, "ar", f"{mid}1/{wide}")
    address(ROUTER, "ra", f"{mid}2/{wide}")
    address(ROUTER, "rd", f"{near}/{end}")
    for number in range(len(extra_delays(point))):
        sender, gateway, target = _addresses(point.path.ip, number)
        address(SENDERS, f"s{number}", f"{sender}/{wide}")
        address(ACCESS, f"a{number}", f"{gateway}/{wide}")
        address(RECEIVERS, "dr", f"{target}/{end}")
        route(SENDERS, f"{target}/{narrow}", "via", gateway)
    route(ACCESS, receivers, "via", f"{mid}2")
    if six:
        # The links' prefixes are longer than this one, so that ACKs find their own link in a.
        route(ROUTER, "fd77:1::/32", "via", f"{mid}1")
    else:
        route(ROUTER, senders, "via", f"{mid}1")
    route(RECEIVERS, "default", "via", near)


def _heed_ecn_low(point: LabPoint) -> None:
    """Have BBRv3 heed ECN on a path with it, and its receivers tell each mark, as DCTCP's do."""
    asked = point.path.ecn and any(flow.cc == "bbr" for flow in point.flows)
    if asked and bbr_versions({"bbr"})["bbr"] == "v3":
        for name in (SENDERS, RECEIVERS):
            _in(name, sys.executable, "-m", f"{__package__}.ecn_low")


def _settings(point: LabPoint) -> None:
    for name in (ACCESS, ROUTER):
        _set(name, "net.ipv4.ip_forward", "1")
        _set(name, "net.ipv6.conf.all.forwarding", "1")
    for name in (SENDERS, RECEIVERS):
        # iperf3's control connections, and the receivers' ends, are not to be BBR.
        _set(name, "net.ipv4.tcp_congestion_control", "reno")
        _set(name, "net.ipv4.tcp_no_metrics_save", "1", may_lack=True)
        _set(name, "net.ipv4.tcp_ecn", "1" if point.path.ecn else "0")
        if point.path.memory_bytes:
            _set(name, "net.ipv4.tcp_rmem", RMEM.format(max(point.path.memory_bytes, 131072)))
            _set(name, "net.ipv4.tcp_wmem", WMEM.format(max(point.path.memory_bytes, 16384)))
    if any(flow.kind == "fixed-size" for flow in point.flows):
        _set(SENDERS, "net.ipv4.tcp_notsent_lowat", str(NOTSENT))


def _set(namespace: str, name: str, value: str, may_lack: bool = False) -> None:
    try:
        _in(namespace, "sysctl", "-qw", f"{name}={value}")
    except HostError:
        if not may_lack:
            raise


def _data(link: PathSpec, loss: float) -> list[str]:
    """netem's options for the data path."""
    words = [*LINE]
    if loss:
        words += ["loss", "random", f"{loss * 100:.6f}%"]
    if link.reorder:
        # All wait but the share that overtakes them.
        words += ["delay", f"{_overtake(link)}us", "reorder", f"{link.reorder * 100:.6f}%"]
    return words


def _overtake(link: PathSpec) -> int:
    """How long packets wait, in us, so that others can overtake them; 0 without reordering."""
    return link.rtt_us // 2 if link.reorder else 0


def _acks(link: PathSpec, rtt_us: int) -> list[str]:
    """netem's options for the ACK path: the delay that the data path does not have."""
    words = [*LINE, "delay", f"{max(rtt_us - _overtake(link), 0)}us"]
    if link.jitter_us:
        words.append(f"{link.jitter_us}us")
    if link.aggregation_us:
        words += ["slot", f"{link.aggregation_us}us", f"{link.aggregation_us}us"]
    return words


def _rate(rate_bps: int) -> list[str]:
    """The shaper's rate. Its bucket is two packets, or half a millisecond of a fast link."""
    bucket = max(2 * PACKET_BYTES, rate_bps // 16000)
    return ["rate", f"{rate_bps}bit", "burst", str(bucket)]


def _shaper(link: PathSpec, verb: str, rate_bps: int) -> list[str]:
    """Return tc's words that set the bottleneck's rate: of tbf, or of htb's only class.

    tbf has the buffer itself; htb's class has it as a queue of its own.
    """
    rate = _rate(rate_bps)
    if link.shaper == "htb":
        place = ["class", verb, "dev", "rd", "parent", "1:", "classid", "1:1"]
        # Without a quantum of its own, htb warns of classes that are fast.
        return [*place, "htb", *rate, "cburst", rate[-1], "quantum", str(PACKET_BYTES)]
    place = ["qdisc", verb, "dev", "rd", "root", "handle", "1:"]
    return [*place, "tbf", *rate, "limit", str(link.buffer_bytes)]


def _bottleneck(link: PathSpec) -> None:
    if link.aqm == "policer":
        call("tc", "-n", ROUTER, "qdisc", "add", "dev", "rd", "clsact")
        call(
            *("tc", "-n", ROUTER, "filter", "add", "dev", "rd", "egress", "matchall"),
            *("action", "police", "rate", f"{link.rate_bps}bit"),
            *("burst", str(link.buffer_bytes), "conform-exceed", "drop"),
        )
        return
    root = ["tc", "-n", ROUTER]
    if link.shaper == "htb":
        call(*root, "qdisc", "add", "dev", "rd", "root", "handle", "1:", "htb", "default", "1")
    call(*root, *_shaper(link, "add", link.rate_bps))
    threshold = f"{link.threshold_us}us"
    packets = str(max(link.buffer_bytes // PACKET_BYTES, 2))
    inner: tuple[str, ...] = (
        ("bfifo", "limit", str(link.buffer_bytes)) if link.shaper == "htb" else ()
    )
    if link.aqm == "fq_codel":
        # Only the threshold acts: the target that would drop is beyond the buffer.
        inner = ("fq_codel", "limit", packets, "flows", "1024", "target", "10s")
        inner += ("ecn", "ce_threshold", threshold)
    elif link.aqm == "red":
        # A step at `threshold` of queueing, as good as RED can: its average follows the queue.
        low = max(link.rate_bps * link.threshold_us // 8_000_000, 2 * PACKET_BYTES)
        inner = ("red", "limit", str(link.buffer_bytes), "min", str(low), "max", str(3 * low))
        inner += ("avpkt", "1000", "burst", str(1 + 5 * low // 3000), "probability", "0.1", "ecn")
        inner += ("bandwidth", f"{link.rate_bps}bit")
    if inner:
        call(*root, "qdisc", "add", "dev", "rd", "parent", "1:1", *inner)


def commands(point: LabPoint, change: PathChange) -> list[tuple[int, list[str]]]:
    """Return what makes a change happen: (time in us, command), an outage's end included."""
    link = point.path

    def tc(name: str, device: str, *words: str) -> list[str]:
        return ["tc", "-n", name, "qdisc", "change", "dev", device, "root", *words]

    if change.what == "rate":
        return [(change.at_us, ["tc", "-n", ROUTER, *_shaper(link, "change", int(change.value))])]
    if change.what == "rtt":
        return [(change.at_us, tc(ROUTER, "ra", "netem", *_acks(link, int(change.value))))]
    if change.what == "loss":
        return [(change.at_us, tc(ACCESS, "ar", "netem", *_data(link, change.value)))]
    end = change.at_us + int(change.value)
    # What is lost when it is over: as the last change before that says.
    losses = [c.value for c in point.changes if c.what == "loss" and c.at_us <= end]
    return [
        (change.at_us, tc(ACCESS, "ar", "netem", *_data(link, 1.0))),
        (end, tc(ACCESS, "ar", "netem", *_data(link, losses[-1] if losses else link.loss))),
    ]
