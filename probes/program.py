"""Write the bpftrace program of one BBR version for one way of attaching.

The recording programs in this folder (bbr1.bt, bbr2.bt, bbr3.bt) are what this module writes for a
plain host; `bbrscope collect --print-probe` prints what it writes for the host at hand. They differ
in how probes are attached, how arguments are read and in the sockets they are restricted to, never
in what is recorded.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from . import leaving
from .attach import OWN_NUMBER, Attach, Host
from .bbr_versions import EXIT, Version
from .flow_share import BACKED_OFF, IS_HASHED, is_in_share
from .printed_rows import COOKIE, IDENTITY, MAX_HEADER, SEQNO, RowPrinter

# Longer than the processing of one packet.
GRACE_NS = 100_000_000
SIGURG = 23  # asm-generic/signal.h; ignored unless handled
SIGWINCH = 28  # ignored unless handled, too
# Between the signal to back off and its effect: longer than the maps take to change.
BACK_OFF_NS = 1_000_000


class Program:
    """Builds the text; one instance per version, host and attach method.

    Its methods return bpftrace source: a string is a whole probe, an expression or a few lines of
    one; a list holds whole probes or the statements of a probe's body.

    Args:
        condition: a bpftrace expression on $sk that sockets must meet; "" for all.
        setup, begin: probes that the condition needs, as text, and statements to be run first.
        backs_off: whether SIGWINCH to bpftrace halves the flows that are recorded from then on.
    """

    def __init__(
        self,
        version: Version,
        host: Host,
        attach: Attach,
        condition: str = "",
        setup: str = "",
        backs_off: bool = False,
        begin: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.host = host
        self.attach = attach
        self.condition = condition
        self.setup = setup
        self.backs_off = backs_off
        self.begin_with = begin
        self.printer = RowPrinter(host, attach)

    def text(self) -> str:
        """The whole program."""
        probes = self.probes()  # these fill the header lines
        parts = [
            *self.printer.structs(self.version.name),
            *self.attach.settings,
            self.begin(),
            self.end_of_recording(),
            self.end_marker(),
            *([self.setup] if self.setup else []),
            *([self.back_off()] if self.backs_off else []),
            heartbeat("first", 1),
            *probes,
            heartbeat("last", 2),
            self.end(),
        ]
        return "\n".join(parts)

    def probes(self) -> list[str]:
        """All probes on the kernel's TCP, in the order of attaching.

        Exits first: an exit without its entry is harmless at the start, the reverse is a gap.
        """
        if self.attach.rung == "tcp_probe":
            return [self.sample(), self.retransmit(), self.destroyed_socket()]
        return [
            self.main_exit(),
            self.init_exit(),
            self.retransmit(),
            *self.loss_mark(),
            *self.callbacks(),
            self.init_entry(),
            self.main_entry(),
            self.destroyed_socket(),
        ]

    # --- pieces of a probe's body -----------------------------------------------------------

    def read_socket(self, sk: str) -> list[str]:
        """Variables of the socket, and the returns that skip what is not asked for."""
        lines = [f"  $sk = (struct sock *){sk};"]
        if self.condition:
            lines.append(f"  if (!({self.condition})) {{ return; }}")
        lines += [
            "  $tp = (struct tcp_sock *)$sk;",
            f"  if (@over[0] != 0 && ({self.moment} > @over[0] ||",
            f"      {self.attach.clock} > @over[0] + {GRACE_NS})) {{ return; }}",
            *(self.leave_out() if self.backs_off else []),
            "  $icsk = (struct inet_connection_sock *)$sk;",
            f"  $bbr = (struct bbrscope_bbr *)((uint64)$sk + {self.host.layout.priv});",
            *(["  $words = (struct bbrscope_words *)$bbr;"] if self.attach.words_per_row else []),
        ]
        return lines

    def leave_out(self) -> list[str]:
        """Skip flows left out since a SIGWINCH; a call then under way still has its exit."""
        # 0.23 crashes at a choice between two values of maps, so the key is chosen.
        late = f"{self.moment} > @since[0] || {self.attach.clock} > @since[0] + {GRACE_NS}"
        return [
            f"  $of = @share[{late} ? 0 : 1];",
            f"  if (!({IS_HASHED} && {is_in_share('$of', BACKED_OFF)})) {{ return; }}",
        ]

    @property
    def moment(self) -> str:
        """When the kernel began to process what called BBR [ns]: one value until the call exits."""
        if self.host.has("tcp_sock", "tcp_clock_cache"):
            return "$tp->tcp_clock_cache"
        return "$tp->tcp_mstamp * 1000"

    def read_entry(self, tag: str) -> list[str]:
        """The socket of a callback's entry, which counts as attempted."""
        sk = self.attach.read_argument("sk", 0)
        return [*self.read_socket(sk), f"  @attempted_{tag} = count();"]

    def read_exit(self, tag: str, rows: list[str]) -> list[str]:
        """The socket of a callback's exit, and the statements `rows` on it.

        fexit has the arguments; a kretprobe finds its socket by the call's place on the stack, and
        has none if the entry was not seen.
        """
        attempted = f"  @attempted_{tag} = count();"
        if self.attach.rung != "kprobe":
            sk = self.attach.read_argument("sk", 0)
            return [*self.read_socket(sk), attempted, *rows]
        call = f"@calls[{self.attach.call_at_return}]"
        assign, *rest = self.read_socket(call)
        guard = "  if ((uint64)$sk == 0) { return; }"
        return [assign, guard, *rest, attempted, f"  delete({call});", *rows]

    def keep_call(self) -> list[str]:
        """Let this call's exit find the socket again, where it has no arguments."""
        if self.attach.rung != "kprobe":
            return []
        return [f"  @calls[{self.attach.call_at_entry}] = (uint64)$sk;"]

    def take_number(self) -> list[str]:
        """Take the socket's next sequence number; the socket is locked by its caller."""
        return ["  $n = @seq[(uint64)$sk];", "  @seq[(uint64)$sk] = $n + 1;"]

    def read_skb(self, skb: str) -> str:
        """The packet's struct tcp_skb_cb."""
        return f"  $cb = (struct tcp_skb_cb *)((uint64){skb} + {self.host.cb});"

    def skip_other_controls(self) -> str:
        """Leave sockets of another congestion control alone."""
        return f"  if ({leaving.another_control(self.version)}) {{ return; }}"

    def print_identity(self, tag: str, names: Sequence[str], extra: dict[str, str]) -> str:
        """Say who the socket is."""
        rows = self.printer.statements(tag, names, {**IDENTITY, **extra})
        return f"  $inet = (struct inet_sock *)$sk;\n{rows}"

    def introduce(self, condition: str = "$n == 0") -> list[str]:
        """Say of a socket that is older than the recording who it is."""
        return [
            f"  if ({condition}) {{",
            "    // A socket older than the recording: say who it is.",
            textwrap.indent(self.print_identity("N", (), MAX_HEADER), "  "),
            "  }",
        ]

    @property
    def state(self) -> list[str]:
        """The fields of the socket and of struct bbr."""
        return [*self.version.socket, *self.host.layout.columns]

    # --- probes -----------------------------------------------------------------------------

    def main_entry(self) -> str:
        """main(): the rate sample, the socket and the state."""
        position = list(self.attach.parameters).index("rs")
        rs = f"  $rs = (struct rate_sample *){self.attach.read_argument('rs', position)};"
        body = [
            *self.read_entry("M"),
            *([rs] if self.attach.members_of("rs") == "$rs" else []),
            *self.keep_call(),
            *self.take_number(),
            *self.introduce(),
            self.printer.statements("M", [*self.version.rate_sample, *self.state], SEQNO),
        ]
        comment = "An ACK: the rate sample, the socket and the state before BBR's main()."
        return probe(comment, self.attach.point(self.version.main), body)

    def main_exit(self) -> str:
        """main() returns: what it wrote outside of struct bbr."""
        rows = self.printer.statements("X", [*EXIT, *COOKIE], {})
        point = self.attach.point(self.version.main, True)
        return probe("What main() left in the socket.", point, self.read_exit("X", [rows]))

    def init_entry(self) -> str:
        """init(): who the socket is, and what it will read."""
        names = [*self.version.names("init"), *self.version.socket]
        body = [
            *self.read_entry("I"),
            *self.keep_call(),
            *self.take_number(),
            self.print_identity("I", names, SEQNO | MAX_HEADER),
        ]
        comment = "BBR takes over a socket: who it is, and what init() will read."
        return probe(comment, self.attach.point(self.version.init), body)

    def init_exit(self) -> str:
        """init() returns: the first state, and v2's parameters."""
        params = self.host.layout.params
        rows = [self.printer.statements("P", params, {})] if params else []
        rows.append(self.printer.statements("IX", self.state, {}))
        point = self.attach.point(self.version.init, True)
        return probe("The first full state.", point, self.read_exit("IX", rows))

    def callbacks(self) -> list[str]:
        """The entries of all callbacks but main() and init()."""
        of, version = self.attach, self.version
        state = {"new_state": of.read_argument("new_state", 1)}
        event = {"event": of.read_argument("event", 1)}
        tx_start = "cwnd_event_tx_start(): CA_EVENT_TX_START, which is event 0."
        lost = "A packet is marked lost: the skb as it was sent."
        table: list[tuple[str | None, str, str, dict[str, str]]] = [
            (version.set_state, "S", "set_state(new_state).", state),
            (version.cwnd_event, "E", "cwnd_event(event).", event),
            (version.tx_start, "E", tx_start, {"event": "0"}),
            (version.ssthresh, "H", "Loss recovery or CWR begins: ssthresh().", {}),
            (version.undo_cwnd, "U", "The loss was spurious: undo_cwnd().", {}),
            (version.skb_marked_lost, "L", lost, {}),
        ]
        return [
            self.callback(function, tag, comment, arguments)
            for function, tag, comment, arguments in table
            if function
        ]

    def callback(self, function: str, tag: str, comment: str, arguments: dict[str, str]) -> str:
        """A callback's entry: its argument, the socket and the whole state before it."""
        body, names = self.read_entry(tag), self.state
        if tag == "L":
            body.append(self.read_skb(self.attach.read_argument("skb", 1)))
            names = [*self.version.skb, *names]
        body += [*self.take_number(), *self.introduce(f"$n == 0 && {IS_HASHED}")]
        body.append(self.printer.statements(tag, names, arguments | SEQNO))
        return probe(comment, self.attach.point(function), body)

    def loss_mark(self) -> list[str]:
        """v1 has no callback for lost packets; the core's own function shows them."""
        if not self.host.marks or self.version.skb_marked_lost:
            return []
        sk, skb = self.attach.read_argument("sk", 0), self.attach.read_argument("skb", 1)
        point = self.attach.point("tcp_mark_skb_lost", module="vmlinux")
        return [probe("A packet was marked lost.", point, self.packet("K", sk, skb))]

    def retransmit(self) -> str:
        """A packet is sent again."""
        point, sk, skb = self.attach.trace("tcp_retransmit_skb")
        return probe("A retransmission.", point, self.packet("R", sk, skb))

    def packet(self, tag: str, sk: str, skb: str) -> list[str]:
        """A row on one packet, which is no event of BBR's."""
        return [
            *self.read_socket(sk),
            self.skip_other_controls(),
            self.read_skb(skb),
            self.printer.statements(tag, self.version.skb, {}),
        ]

    def sample(self) -> str:
        """The tracepoint rung: socket and state whenever a packet arrives; no rate sample."""
        point, sk, _skb = self.attach.trace("tcp_probe")
        body = [
            *self.read_socket(sk),
            *leaving.tell_leaving(self.version, self.printer, self.numbering),
            "  @attempted_T = count();",
            *self.take_number(),
            *self.introduce(),
            self.printer.statements("T", self.state, SEQNO | COOKIE),
        ]
        return probe("A packet arrives on a BBR socket.", point, body)

    def destroyed_socket(self) -> str:
        """A socket is gone: forget what is kept by its address, which another may get."""
        point, sk, _skb = self.attach.trace("tcp_destroy_sock")
        body = leaving.forget(sk, self.version, self.printer, self.socket_maps)
        return probe("A socket is gone: forget it, and say if it had left BBR.", point, body)

    @property
    def numbering(self) -> list[str]:
        """The maps that have an entry per socket while it has BBR."""
        return ["@seq"]

    @property
    def socket_maps(self) -> list[str]:
        """The maps that have an entry per socket."""
        return [*self.numbering, *(["@mine"] if "@mine" in self.condition else [])]

    # --- begin and end ----------------------------------------------------------------------

    def begin(self) -> str:
        """Name the columns of every row that the probes print."""
        longest = self.attach.longest_text
        body = [
            line for row in self.printer.rows for line in print_text(f"{row.header}\\n", longest)
        ]
        body += [f"  {one}" for one in (OWN_NUMBER, *self.begin_with)]
        if self.backs_off:
            body.append("  @since[0] = (uint64)0; @share[0] = (uint64)1; @share[1] = (uint64)1;")
        if self.attach.rung == "kprobe":
            body += ["  @calls[0] = (uint64)0;  // sockets of the calls under way, by stack slot"]
        return probe("Name the columns of every row.", "BEGIN", body)

    def end_of_recording(self) -> str:
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
        point = f"tracepoint:signal:signal_generate\n/{ours}/"
        return probe(comment, point, [f"  @over[0] = {self.attach.clock};"])

    def end_marker(self) -> str:
        """A line "+over", again and again, from when no row can be written any more.

        Where all CPUs share a ring, what was recorded is printed before the first of them. Where
        each has its own, bpftrace reads them all in turn: before the second. A full ring loses
        some; the next comes through.
        """
        comment = "All rows are on their way: two of these lines tell that all are printed."
        late = f"@over[0] != 0 && {self.attach.clock} > @over[0] + {2 * GRACE_NS}"
        return probe(comment, f"interval:ms:100\n/{late}/", ['  printf("+over\\n");'])

    def back_off(self) -> str:
        """SIGWINCH: from now on record about half of these flows."""
        of = self.attach.argument
        ours = f"(uint64){of}pid == @self[0] && {of}sig == {SIGWINCH}"
        body = [
            "  @share[1] = @share[0];",
            f"  @since[0] = {self.attach.clock} + {BACK_OFF_NS};",
            "  @share[0] = @share[1] * 2;",
        ]
        comment = "SIGWINCH to bpftrace: record half as many flows."
        return probe(comment, f"tracepoint:signal:signal_generate\n/{ours}/", body)

    def end(self) -> str:
        """Empty all maps but the counters."""
        maps = [*self.socket_maps, "@beat", "@self", "@over"]
        maps += ["@since", "@share"] if self.backs_off else []
        maps += ["@calls"] if self.attach.rung == "kprobe" else []
        maps += [name for name in ("@listening", "@had", "@level") if name in self.setup]
        body = [f"  clear({name});" for name in maps]
        return probe("bpftrace prints the maps that are left: the counters.", "END", body)


def print_text(text: str, longest: int) -> list[str]:
    """Statements that print a line of names, in pieces of so many bytes."""
    pieces = [""]
    for name in re.split(r"(?<=[,+])", text):
        if len(pieces[-1] + name) > longest:
            pieces.append("")
        pieces[-1] += name
    return [f'  printf("{piece}");' for piece in pieces]


def heartbeat(name: str, number: int) -> str:
    """A probe at either end of the program: when both have ticked, all between are attached."""
    once = f"/@beat[{number}] == 0/"
    return f'interval:ms:500\n{once}\n{{\n  printf("+{name}\\n");\n  @beat[{number}] = 1;\n}}\n'


def probe(comment: str, point: str, body: Sequence[str]) -> str:
    """The text of a probe: a comment, where it attaches, and its statements."""
    return "\n".join([f"// {comment}", point, "{", *body, "}\n"])
