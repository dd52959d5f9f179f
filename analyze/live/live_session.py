"""A recording that writes nothing: rows, or ss where nothing can attach, and flows as they are."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...collect.flight import beginnings
from ...collect.flight.triggers import LiveBatch
from ...collect.record.captures import samplers
from ...collect.record.host import clocks
from ...collect.record.output.live_rows import ORDER_NS
from ...collect.record.output.manifest import ManifestWriter
from ...collect.record.output.outputs import Discarded, FilelessOutputs
from ...collect.record.plan import RecordingPlan
from ...collect.record.watching import Watching
from ...collect.samples.ss_log import samples
from ...probes.base.errors import HostError
from .follower import Followed, Follower
from .live_flows import LiveFlows

SS_NS = 1_000_000_000


class LiveSession:
    """Attached to this host's flows; `tick()` again and again keeps `flows` current."""

    def __init__(self, plan: RecordingPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.watching = Watching(plan, FilelessOutputs(lambda _name: Discarded()), say)
        self.follower = Follower()
        self.flows = LiveFlows()
        self._looked_ns = 0

    @property
    def ended(self) -> str:
        """What ended it; "" while nothing has."""
        return self.watching.ended

    @ended.setter
    def ended(self, why: str) -> None:
        """End it."""
        self.watching.ended = why

    @property
    def rung(self) -> str:
        """How it is attached."""
        return self.watching.rung

    def start(self) -> None:
        """Attach by the best rung that works on this host.

        Raises:
            HostError: none works.
        """
        attaching = self.watching.attach()
        writer = ManifestWriter(self.plan, attaching)
        self.follower.begin(writer.at_start(clocks.sample(), []))

    def tick(self) -> Followed:
        """Take what came since the last tick; return it (nothing on the rung inet_diag)."""
        now_ns = time.monotonic_ns()
        self.ended = self.ended or self.watching.why_end()
        if self.watching.rung == "inet_diag":
            self._look(now_ns)
            return Followed([], [])
        columns = beginnings.columns_of(self.watching.headers)
        batch = LiveBatch(columns, self.watching.rows.take(), now_ns - ORDER_NS)
        followed = self.follower.take(batch)
        self.flows.take(self.follower.version, followed)
        self.flows.forget(now_ns)
        return followed

    def _look(self, now_ns: int) -> None:
        """Ask ss, once a second."""
        if now_ns - self._looked_ns < SS_NS:
            return
        self._looked_ns = now_ns
        select = self.plan.select
        text = samplers.ss_lines(select.prefix, select.ss(), select.pids) or ""
        # What ss told is as old as its answer: on a busy host it takes long to start.
        answered_ns = time.monotonic_ns()
        self.flows.sample(samples(text.splitlines()), answered_ns)
        self.flows.forget(answered_ns)

    def require_attached(self) -> None:
        """See that it did not end by itself.

        Raises:
            HostError: bpftrace did.
        """
        if self.ended.startswith("bpftrace ended"):
            raise HostError(self.ended, "bbrscope doctor")

    def stop(self) -> None:
        """Detach; safe to call in any state."""
        self.watching.stop()
