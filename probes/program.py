"""Write the bpftrace program of one BBR version for one way of attaching.

The programs in this folder (bbr1.bt, bbr2.bt, bbr3.bt) are what this module writes for a plain
host; `bbrscope collect --print-probe` prints what it writes for the host at hand. They differ in
how probes are attached, how arguments are read and in the sockets they are restricted to, never in
what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import columns, layout
from .columns import Version

# bpftrace 0.17 builds rows on the BPF stack of 512 bytes: 36 values of v2's or v3's struct fit, 41
# do not. Newer ones have a buffer for them; 62 is what the reference recordings have.
VALUES_ON_STACK = 32
VALUES_PER_ROW = 62


@dataclass(frozen=True)
class Attach:
    """How the probes of one rung of the attach ladder are written.

    `rung` is fentry, kprobe or tcp_probe; `entry`/`exit` the keywords of this bpftrace ("fentry" or
    "kfunc"); `argument` how an fentry argument is read ("args." or "args->"); `module` the module
    of the functions, "" when they are built in; `parameters` the parameter names of the main
    function, which give kprobe its registers; `jiffies` and `clock` the expressions that read
    them ("" when the host hides jiffies); `raw` whether raw tracepoints can be used;
    `values_per_row` how many values this bpftrace can print at once.
    """

    rung: str
    entry: str = "fentry"
    exit: str = "fexit"
    argument: str = "args."
    module: str = ""
    parameters: Sequence[str] = ("sk", "rs")
    jiffies: str = "jiffies"
    clock: str = "nsecs(monotonic)"
    raw: bool = False
    values_per_row: int = VALUES_PER_ROW

    def trace(self, name: str) -> tuple[str, str, str]:
        """(attach point, socket, skb) of a TCP tracepoint.

        bpftrace 0.17 has no raw tracepoints; old kernels' tcp_probe has no skaddr.
        """
        if self.raw:
            return f"rawtracepoint:{name}", "arg0", "arg1"
        return f"tracepoint:tcp:{name}", f"{self.argument}skaddr", f"{self.argument}skbaddr"


@dataclass(frozen=True)
class Host:
    """What the host's types allow: columns that are not in its BTF are left out.

    `has(struct, member)` answers for vmlinux; `cb` is the offset of sk_buff.cb in bytes or as an
    expression, `marks` whether v1's loss marks can be had from tcp_mark_skb_lost().
    """

    layout: layout.Layout
    cb: int | str
    has: Callable[[str, str], bool] = field(default=lambda _struct, _member: True)
    marks: bool = False


@dataclass(frozen=True)
class Row:
    """One output line: its tag, the columns by name and the expression of each."""

    tag: str
    names: Sequence[str]
    expressions: Sequence[str]

    @property
    def header(self) -> str:
        return ",".join([f"#{self.tag}", "ns", "sk", *self.names])

    def printf(self, clock: str) -> str:
        """The statement that prints the row."""
        formats = [conversion(name) for name in self.names]
        text = ",".join([self.tag, "%llu", "%llx", *formats])
        values = ",\n    ".join(chunks([clock, "(uint64)$sk", *self.expressions]))
        return f'  printf("{text}\\n",\n    {values});'


def chunks(values: Sequence[str], width: int = 92) -> list[str]:
    """Join expressions with commas into lines of bounded width."""
    lines = [""]
    for value in values:
        if lines[-1] and len(lines[-1]) + len(value) + 2 > width:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + value
    return lines


def conversion(name: str) -> str:
    """printf conversion of a column."""
    if name in ("saddr6", "daddr6"):
        return "%s"
    if name in columns.WIDE:
        return "%llu"
    if name in columns.SIGNED_WIDE:
        return "%lld"
    return "%d" if name in columns.SIGNED else "%u"


def expression(name: str, attach: Attach) -> str:
    """The bpftrace expression that reads a column."""
    group, _, member = name.partition(".")
    if name == "jiffies32":
        return f"(uint32){attach.jiffies}"
    if name == "icsk_ca_state":
        return "$icsk->icsk_ca_state"
    if name == "sk.cookie":
        return "$sk->__sk_common.skc_cookie.counter"
    if group == "bbr":
        return f"$bbr->{layout.flat(member)}"
    if group == "params":
        return f"$bbr->{layout.flat(name)}"
    if group == "skb":
        return f"$cb->{columns.SKB[name]}"
    return f"${group}->{member}"


IDENTITY = {
    "sport": "$inet->inet_sport",
    "dport": "$sk->__sk_common.skc_dport",
    "daddr": "$sk->__sk_common.skc_daddr",
    "family": "$sk->__sk_common.skc_family",
    "saddr": "$sk->__sk_common.skc_rcv_saddr",
    "saddr6": "ntop(10, $sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8)",
    "daddr6": "ntop(10, $sk->__sk_common.skc_v6_daddr.in6_u.u6_addr8)",
    "netns": "$sk->__sk_common.skc_net.net->ns.inum",
}

STRUCTS = {"tp": "tcp_sock", "sk": "sock", "rs": "rate_sample"}


class Program:
    """Builds the text; one instance per version, host and attach method."""

    def __init__(
        self, version: Version, host: Host, attach: Attach, condition: str = "", setup: str = ""
    ) -> None:
        self.version = version
        self.host = host
        self.attach = attach
        self.condition = condition
        self.setup = setup
        self.rows: list[Row] = []

    def present(self, names: Sequence[str]) -> list[str]:
        """The columns that this kernel's structs have."""
        kept = []
        for name in names:
            group, _, member = name.partition(".")
            struct = STRUCTS.get(group)
            if name == "jiffies32" and not self.attach.jiffies:
                continue
            if struct is None or name == "sk.cookie" or self.host.has(struct, member):
                kept.append(name)
        return kept

    def print_rows(self, tag: str, names: Sequence[str], extra: dict[str, str]) -> str:
        """Statements that print `extra` and the named columns, in as many rows as they need."""
        names = self.present(names)
        all_names = [*extra, *names]
        values = [*extra.values(), *(expression(name, self.attach) for name in names)]
        count = -(-len(values) // self.attach.values_per_row)
        size = -(-len(values) // count)
        parts = [
            (f"{tag}{i}" if count > 1 else tag, slice(i * size, (i + 1) * size))
            for i in range(count)
        ]
        statements = []
        for row_tag, part in parts:
            row = Row(row_tag, all_names[part], values[part])
            if row.tag not in {known.tag for known in self.rows}:
                self.rows.append(row)
            statements.append(row.printf(self.attach.clock))
        return "\n".join(statements)

    # --- pieces of a probe body -------------------------------------------------------------

    def point(self, function: str, is_exit: bool = False) -> str:
        if self.attach.rung == "kprobe":
            return f"{'kretprobe' if is_exit else 'kprobe'}:{function}"
        module = self.attach.module or "vmlinux"
        return f"{self.attach.exit if is_exit else self.attach.entry}:{module}:{function}"

    def argument(self, name: str, position: int) -> str:
        if self.attach.rung == "kprobe":
            return f"arg{position}"
        return f"{self.attach.argument}{name}"

    def sockets(self, sk: str) -> list[str]:
        """Variables of the socket, and the returns that skip what is not asked for."""
        lines = [f"  $sk = (struct sock *){sk};"]
        if self.condition:
            lines.append(f"  if (!({self.condition})) {{ return; }}")
        lines += [
            "  $tp = (struct tcp_sock *)$sk;",
            f"  if (@over[0] != 0 && ({self.moment} > @over[0] ||",
            f"      {self.attach.clock} > @over[0] + {GRACE_NS})) {{ return; }}",
            "  $icsk = (struct inet_connection_sock *)$sk;",
            f"  $bbr = (struct bbrscope_bbr *)((uint64)$sk + {self.host.layout.priv});",
        ]
        return lines

    @property
    def moment(self) -> str:
        """When the kernel began to process what called BBR: the same at a call's entry and exit."""
        if self.host.has("tcp_sock", "tcp_clock_cache"):
            return "$tp->tcp_clock_cache"
        return "$tp->tcp_mstamp * 1000"

    def numbered(self) -> list[str]:
        """Take the socket's next sequence number; the socket is locked by its caller."""
        return ["  $n = @seq[(uint64)$sk];", "  @seq[(uint64)$sk] = $n + 1;"]

    def identity(self, tag: str, extra: dict[str, str]) -> str:
        both = {**IDENTITY, **extra}
        return "\n".join(
            ["  $inet = (struct inet_sock *)$sk;", self.print_rows(tag, (), both)]
            if tag == "N"
            else ["  $inet = (struct inet_sock *)$sk;", self.print_rows(tag, self.socket, both)]
        )

    @property
    def not_ours(self) -> str:
        """The condition on sockets of another congestion control; v3 registers as "bbr" too."""
        name = "bbr2" if self.version.name == "v2" else "bbr"
        return f'$icsk->icsk_ca_ops->name != "{name}"'

    @property
    def socket(self) -> list[str]:
        return self.version.socket

    @property
    def state(self) -> list[str]:
        return [*self.socket, *self.host.layout.columns]

    # --- probes -----------------------------------------------------------------------------

    def callback(self, function: str, tag: str, comment: str, extra: dict[str, str]) -> str:
        """A callback's entry: its argument, the socket and the whole state before it."""
        body = [*self.sockets(self.argument("sk", 0)), f"  @attempted_{tag} = count();"]
        if tag == "L":
            skb = self.argument("skb", 1)
            body.append(f"  $cb = (struct tcp_skb_cb *)((uint64){skb} + {self.host.cb});")
        body += self.numbered()
        names = [*self.version.skb, *self.state] if tag == "L" else self.state
        body.append(self.print_rows(tag, names, {**extra, "seqno": "$n"}))
        return probe(comment, self.point(function), body)

    def main_entry(self) -> str:
        body = [*self.sockets(self.argument("sk", 0)), "  @attempted_M = count();"]
        position = list(self.attach.parameters).index("rs")
        body.append(f"  $rs = (struct rate_sample *){self.argument('rs', position)};")
        if self.attach.rung == "kprobe":
            # The return probe has no arguments; this call's stack slot finds them again.
            body.append('  @calls[reg("sp")] = (uint64)$sk;')
        body += self.numbered()
        body.append("  if ($n == 0) {\n    // A socket older than the recording: say who it is.")
        body.append(indent(self.identity("N", {"max_header": MAX_HEADER})))
        body.append("  }")
        names = [f"rs.{name}" for name in self.version.rate_sample] + self.state
        body.append(self.print_rows("M", names, {"seqno": "$n"}))
        comment = "An ACK: the rate sample, the socket and the state before BBR's main()."
        return probe(comment, self.point(self.version.main), body)

    def main_exit(self) -> str:
        body = [*self.sockets(self.exit_socket()), "  @attempted_X = count();"]
        body = self.guarded(body)
        body.append(self.print_rows("X", [*columns.EXIT, "sk.cookie"], {}))
        return probe("What main() left in the socket.", self.point(self.version.main, True), body)

    def init_entry(self) -> str:
        body = [*self.sockets(self.argument("sk", 0)), "  @attempted_I = count();"]
        if self.attach.rung == "kprobe":
            body.append('  @calls[reg("sp")] = (uint64)$sk;')
        body += self.numbered()
        extra = {"seqno": "$n", "max_header": MAX_HEADER, "tp.rtt_min": "$tp->rtt_min.s[0].v"}
        body.append(self.identity("I", extra))
        comment = "BBR takes over a socket: who it is, and what init() will read."
        return probe(comment, self.point(self.version.init), body)

    def init_exit(self) -> str:
        body = [*self.sockets(self.exit_socket()), "  @attempted_IX = count();"]
        body = self.guarded(body)
        if self.host.layout.params:
            body.append(self.print_rows("P", self.host.layout.params, {}))
        body.append(self.print_rows("IX", self.state, {}))
        return probe("The first full state.", self.point(self.version.init, True), body)

    def exit_socket(self) -> str:
        # The stack pointer at a return probe is one slot above that at the entry of the call.
        return '@calls[reg("sp") - 8]' if self.attach.rung == "kprobe" else self.argument("sk", 0)

    def guarded(self, body: list[str]) -> list[str]:
        """A return probe whose entry was not seen has no socket."""
        if self.attach.rung != "kprobe":
            return body
        lines = [body[0], "  if ((uint64)$sk == 0) { return; }", *body[1:]]
        return [*lines, '  delete(@calls[reg("sp") - 8]);']

    def marks(self) -> str:
        """v1 has no callback for lost packets; the core's own function tells."""
        skb = self.argument("skb", 1)
        body = [
            *self.sockets(self.argument("sk", 0)),
            f"  if ({self.not_ours}) {{ return; }}",
            f"  $cb = (struct tcp_skb_cb *)((uint64){skb} + {self.host.cb});",
            self.print_rows("K", self.version.skb, {}),
        ]
        point = self.point("tcp_mark_skb_lost").replace(f":{self.attach.module}:", ":vmlinux:")
        return probe("A packet was marked lost.", point, body)

    def retransmits(self) -> str:
        point, sk, skb = self.attach.trace("tcp_retransmit_skb")
        body = [
            *self.sockets(sk),
            f"  if ({self.not_ours}) {{ return; }}",
            f"  $cb = (struct tcp_skb_cb *)((uint64){skb} + {self.host.cb});",
            self.print_rows("R", self.version.skb, {}),
        ]
        return probe("A retransmission.", point, body)

    def destroyed(self) -> str:
        point, sk, _skb = self.attach.trace("tcp_destroy_sock")
        body = [f"  if (@seq[(uint64){sk}]) {{ delete(@seq[(uint64){sk}]); }}", *self.forget(sk)]
        return probe("A socket is gone: forget its sequence number.", point, body)

    def forget(self, sk: str) -> list[str]:
        if "@mine" not in self.condition:
            return []
        return [f"  if (@mine[(uint64){sk}]) {{ delete(@mine[(uint64){sk}]); }}"]

    def samples(self) -> str:
        """The tracepoint rung: socket and state whenever a packet arrives; no rate sample."""
        point, sk, _skb = self.attach.trace("tcp_probe")
        body = [
            *self.sockets(sk),
            f"  if ({self.not_ours}) {{ return; }}",
            "  @attempted_T = count();",
            *self.numbered(),
            "  if ($n == 0) {",
            indent(self.identity("N", {"max_header": MAX_HEADER})),
            "  }",
            self.print_rows("T", self.state, {"seqno": "$n", "sk.cookie": COOKIE}),
        ]
        return probe("A packet arrives on a BBR socket.", point, body)

    def over(self) -> str:
        """The recording ends in the kernel, at once and for all CPUs, while bpftrace prints on.

        An event counts by when its processing began, so that no call is cut in half. Not every
        caller has refreshed that time (tcp_rcv_established() traces first): an idle socket's next
        packet would count seconds later, when nobody prints any more. Hence the grace.

        The tracepoint fires in the sender's kill(); SIGURG does nothing else to bpftrace, whereas
        0.17 forgets, at SIGINT, whatever it has not printed yet. The first signal counts: a later
        end would let in what nobody prints any more.
        """
        of = self.attach.argument
        signals = f"({of}sig == 2 || {of}sig == {SIGURG})"
        ours = f"(uint64){of}pid == @self[0] && {signals} && @over[0] == 0"
        comment = (
            "SIGURG or SIGINT to bpftrace, the first: no more events, only those on their way."
        )
        point = "tracepoint:signal:signal_generate"
        return probe(comment, f"{point}\n/{ours}/", [f"  @over[0] = {self.attach.clock};"])

    def probes(self) -> list[str]:
        if self.attach.rung == "tcp_probe":
            return [self.samples(), self.retransmits(), self.destroyed()]
        version = self.version
        plain: list[tuple[str, str, str, dict[str, str]]] = [
            (version.ssthresh, "H", "Loss recovery or CWR begins: ssthresh().", {}),
            (version.undo_cwnd, "U", "The loss was spurious: undo_cwnd().", {}),
        ]
        state = {"new_state": self.argument("new_state", 1)}
        renamed = version.cwnd_event == columns.TX_START
        event = {"event": "0" if renamed else self.argument("event", 1)}
        # Exits first: an exit without its entry is harmless at the start, the reverse is a gap.
        found = [self.main_exit(), self.init_exit(), self.retransmits()]
        if self.host.marks and not version.skb_marked_lost:
            found.append(self.marks())
        found.append(self.callback(version.set_state, "S", "set_state(new_state).", state))
        found.append(self.callback(version.cwnd_event, "E", "cwnd_event(event).", event))
        found += [self.callback(*each) for each in plain]
        if version.skb_marked_lost:
            comment = "A packet is marked lost: the skb as it was sent."
            found.append(self.callback(version.skb_marked_lost, "L", comment, {}))
        return [*found, self.init_entry(), self.main_entry(), self.destroyed()]

    def text(self) -> str:
        """The whole program."""
        probes = self.probes()
        heads = "\n".join(f'  printf("{row.header}\\n");' for row in self.rows)
        heads += "\n  @self[0] = (uint64)pid;"
        if self.attach.rung == "kprobe":
            heads += "\n  @calls[0] = (uint64)0;  // sockets of the calls under way, by stack slot"
        begin = f"// Name the columns of every row.\nBEGIN\n{{\n{heads}\n}}\n"
        maps = ["@seq", "@beat", "@self", "@over"] + (
            ["@calls"] if self.attach.rung == "kprobe" else []
        )
        maps += [name for name in ("@mine", "@listening") if name in self.condition]
        cleared = "\n".join(f"  clear({name});" for name in maps)
        end = f"// bpftrace prints the maps that are left: the counters.\nEND\n{{\n{cleared}\n}}\n"
        definition = layout.definition(self.host.layout)
        intro = f"// struct bbr of {self.version.name}, flat: bw.s[0].t is bw_s_0_t.\n"
        setup = [self.setup] if self.setup else []
        beats = [heartbeat("first", 1), heartbeat("last", 2)]
        parts = [begin, self.over(), *setup, beats[0], *probes, beats[1], end]
        return "\n".join([intro + definition + "\n", *parts])


# Longer than the processing of one packet, shorter than the collector's wait for the last rows.
GRACE_NS = 100_000_000
SIGURG = 23  # asm-generic/signal.h; ignored unless handled
COOKIE = "$sk->__sk_common.skc_cookie.counter"
MAX_HEADER = "$sk->__sk_common.skc_prot->max_header"


def heartbeat(name: str, number: int) -> str:
    """A probe at either end of the program: when both have ticked, all between are attached."""
    once = f"/@beat[{number}] == 0/"
    return f'interval:ms:500\n{once}\n{{\n  printf("+{name}\\n");\n  @beat[{number}] = 1;\n}}\n'


def probe(comment: str, point: str, body: Sequence[str]) -> str:
    return "\n".join([f"// {comment}", point, "{", *body, "}\n"])


def indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
