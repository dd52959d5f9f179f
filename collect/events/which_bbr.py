"""Which BBR made a recording: decided from the fields it has, never from its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...probes.base.errors import BundleError

# Version -> fields of struct bbr that it alone has among the three. One is enough: probes may
# leave fields out.
DISTINCT = {
    "v1": ("bbr.bw.s[0].v", "bbr.lt_bw", "bbr.lt_use_bw", "bbr.rtt_cnt"),
    "v2": ("bbr.debug.event", "params.high_gain", "bbr.debug.target_cwnd"),
    "v3": ("bbr.full_bw_now", "bbr.plb.pause_until"),
}


@dataclass(frozen=True)
class RecordedLayout:
    """The layout of struct bbr: `version` is v1, v2 or v3, `reason` a sentence saying why."""

    version: str
    reason: str


def decide(columns: set[str], manifest: Mapping[str, Any]) -> RecordedLayout:
    """Decide the layout from the recorded columns.

    Raises:
        BundleError: no version's own fields are there, or those of two.
    """
    own_fields = {
        version: [field for field in fields if field in columns]
        for version, fields in DISTINCT.items()
    }
    fitting = [version for version, fields in own_fields.items() if fields]
    if len(fitting) != 1:
        raise BundleError(*_undecided(own_fields, fitting))
    version = fitting[0]
    reason = f"the recording has {own_fields[version][0]}, which only {version}'s struct bbr has"
    declared = manifest.get("bbr")
    if isinstance(declared, str) and declared and declared != version:
        reason += f"; the manifest says {declared}"
    return RecordedLayout(version, reason)


def _undecided(own_fields: Mapping[str, list[str]], fitting: list[str]) -> tuple[str, str]:
    if fitting:
        seen = "; ".join(f"{version}: {own_fields[version][0]}" for version in fitting)
        return (
            f"events.csv has fields of more than one struct bbr ({seen})",
            "record one kernel per bundle",
        )
    wanted = "; ".join(f"{version}: {' or '.join(DISTINCT[version])}" for version in DISTINCT)
    return (
        "events.csv has none of the fields that tell BBR's versions apart",
        f"record one of these ({wanted})",
    )
