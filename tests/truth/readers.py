"""The numbers of findings by raw rows: rule -> what works them out of a flow's."""

from __future__ import annotations

from tests.truth import (
    readers_alone,
    readers_bounds,
    readers_changes,
    readers_hosts,
    readers_lab,
    readers_loss,
    readers_made,
    readers_paths,
    readers_queue,
    readers_rivals,
    readers_shares,
)
from tests.truth.recomputed import Reader

# These say whether there is anything to tell at all.
VERDICTS: dict[str, Reader] = {
    **readers_made.READERS,
    **readers_rivals.READERS,
    **readers_alone.READERS,
}
READERS: dict[str, Reader] = {
    **readers_loss.READERS,
    **readers_queue.READERS,
    **readers_bounds.READERS,
    **readers_shares.READERS,
    **readers_paths.READERS,
    **readers_lab.READERS,
    **readers_changes.READERS,
    **readers_hosts.READERS,
    **VERDICTS,
}
# Numbers of findings that are none of the recording: rule -> name -> why.
EXCUSED = {
    "ecn_ignored": {"marks": "the number of an RFC"},
    "rtt_unfairness": {"short": "the other flow's number, which the store gives"},
}
