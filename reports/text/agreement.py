"""How a replay agreed with the kernel, as text: a line per flow and mode, and what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...probes.base.plurals import plural, words_after
from .print_table import printable

if TYPE_CHECKING:
    from ...analyze.replay.flow_replay import FlowReplay

# Gaps named one by one; the others are counted.
_MOST_GAPS = 5


@dataclass(frozen=True)
class AgreementText:
    """Writes runs line by line to `write`; `fields` asks for the agreement of every field."""

    write: Callable[[str], None]
    fields: bool

    def say(self, line: str) -> None:
        """Write one line: what a manifest says in it neither ends it nor begins bold text."""
        self.write(printable(line))

    def run(self, flows: list[FlowReplay]) -> None:
        """Write one run: as which BBR it was decoded, why, and how its flows agree in each mode."""
        if not flows:
            return
        info = flows[0].info
        self.say(f"{info.run}: decoded as {info.flavour} because {info.decoded_as}")
        for flow in flows:
            for mode in flow.passes:
                self._mode(flow, mode)
            self._notes(flow)

    def _mode(self, flow: FlowReplay, mode: str) -> None:
        result, counts = flow.passes[mode], flow.counts[mode]
        share = f"{100 * result.exact / result.compared:.2f} %" if result.compared else "-"
        whole = sum(compared == exact for compared, exact in counts.values())
        # The shorter word ends in a space: columns of several flows stay below each other.
        self.say(
            f"  flow {flow.flow} {mode:8}  {result.exact:>9,} of {result.compared:>9,} "
            f"{words_after(result.compared, 'event exact |events exact')}  {share}, {whole} of"
            f" {plural(len(counts), 'field')} throughout"
        )
        for name, (compared, exact) in counts.items():
            if self.fields or compared != exact:
                self.say(f"      {name:28} {exact:>9,} of {compared:>9,}")
        divergence = flow.divergences[mode]
        if divergence:
            self._divergence(divergence)

    def _divergence(self, first: dict[str, Any]) -> None:
        place = f"event {first['seq']} ({first['kind']}), line {first['line']}"
        self.say(f"    first divergence: {place}")
        for name, values in first["fields"].items():
            self.say(
                f"      {name}: expected {values['expected']}, got {values['got']}"
                f" (before: {values['before']})"
            )
        self.say(f"      inputs: {', '.join(f'{k}={v}' for k, v in first['inputs'].items())}")
        self.say(f"      decisions: {', '.join(first['decisions']) or 'none'}")

    def _notes(self, flow: FlowReplay) -> None:
        if not flow.has_init and flow.count:
            self.say("    starts in the middle of the flow: replayed from its first full state")
        if flow.missing:
            self.say(f"    the recording lacks {', '.join(flow.missing)}")
        for gap in flow.gaps[:_MOST_GAPS]:
            self.say(f"    gap after line {gap.line}: {gap.kind}: {gap.detail}")
        if len(flow.gaps) > _MOST_GAPS:
            more = len(flow.gaps) - _MOST_GAPS
            self.say(f"    ... {plural(more, 'more gap')} (bbrscope sql 'FROM gaps')")
