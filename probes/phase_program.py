"""The program that records a socket's state only where BBR's phase changes: `collect --phases`."""

from __future__ import annotations

from .leaving import tell_leaving
from .printed_rows import COOKIE, SEQNO
from .program import Program, probe

# v1's PROBE_BW has eight phases: up, down and six that have gain 1 and are one cruise here.
V1_CRUISE = 2
# More than any cycle_idx; a key of 0 would be that of a socket not seen yet.
KEYS_PER_MODE = 16


class PhaseProgram(Program):
    """Prints a T row when the phase is not the one before; every other ACK costs two look-ups."""

    def probes(self) -> list[str]:
        """One probe where BBR is called, or where a packet arrives, and one where sockets end."""
        return [self.change(), self.destroyed_socket()]

    @property
    def numbering(self) -> list[str]:
        """The map of `Program`, and that of every socket's phase."""
        return [*super().numbering, "@phase"]

    def change(self) -> str:
        """The probe of the phase as an ACK finds it: a change shows with the next ACK."""
        sampled = self.attach.rung == "tcp_probe"
        traced, argument, _skb = self.attach.trace("tcp_probe")
        point = traced if sampled else self.attach.point(self.version.main)
        sk = argument if sampled else self.attach.read_argument("sk", 0)
        body = [
            *self.read_socket(sk),
            *(tell_leaving(self.version, self.printer, self.numbering) if sampled else []),
            *self.phase(),
            "  if (@phase[(uint64)$sk] == $phase) { return; }",
            "  @phase[(uint64)$sk] = $phase;",
            "  @attempted_T = count();",
            *self.take_number(),
            *self.introduce(),
            self.printer.statements("T", self.state, SEQNO | COOKIE),
        ]
        return probe("An ACK finds BBR in another phase than the one before.", point, body)

    def phase(self) -> list[str]:
        """The statements that make $phase of the phase: one number, never 0."""
        lines = ["  $cycle = (uint64)$bbr->cycle_idx;"]
        if self.version.name == "v1":
            lines.append(f"  if ($cycle > {V1_CRUISE}) {{ $cycle = (uint64){V1_CRUISE}; }}")
        return [*lines, f"  $phase = (uint64)$bbr->mode * {KEYS_PER_MODE} + $cycle + 1;"]
