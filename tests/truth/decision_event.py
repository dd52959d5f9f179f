"""One raw row, what its decisions made of it so far, and which fields they lead from old to new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bbrscope.analyze.bbr.codes import Code

from tests.truth.kernel_volumes import UNSET, Path

Evidence = dict[str, int]

# Fields that decisions lead from an old to a new value: what codes are about, by their field.
LINKED = {
    "inflight_hi": "bbr.inflight_hi",
    "inflight_lo": "bbr.inflight_lo",
    "bw_lo": "bbr.bw_lo",
    "min_rtt": "bbr.min_rtt_us",
    "probe_rtt_min": "bbr.probe_rtt_min_us",
    "ecn": "bbr.ecn_alpha",
    "cwnd": "tp.snd_cwnd",
    "pacing": "sk.sk_pacing_rate",
}
_NAMES = {
    "bw_lo": ("old_bw", "new_bw"),
    "min_rtt": ("old_us", "new_us"),
    "probe_rtt_min": ("old_us", "new_us"),
    "pacing": ("old_rate", "new_rate"),
}
OLD_OR_NEW = frozenset("old new old_bw new_bw old_us new_us old_rate new_rate".split())
_UNIT = 256
_DOWN = 1  # of cycle_idx, in v2 and v3
_V1_INIT_CWND = 10


class Event:
    """One raw row: fields before the event and after it, and what decisions say in between.

    Attributes:
        following: the next row.
        earlier: cwnd and pacing rate as the event before left them; nothing: it is the first.
        now: fields of LINKED and the bandwidths, as the decisions up to here have left them.
        was_reset: the latest signals were, earlier in this event.
    """

    def __init__(
        self,
        row: Mapping[str, Any],
        after: Mapping[str, Any],
        constants: Mapping[str, int],
        earlier: Mapping[str, int | None],
    ) -> None:
        self.row, self.following, self._constants = row, after, constants
        self.earlier = earlier
        self.version = 1 if "bbr.lt_bw" in row else 2
        self.version += "rs.is_acking_tlp_retrans_seq" in row
        self.was_reset = False
        self.now = {about: row.get(name) for about, name in LINKED.items()}
        self.now |= {"hi_0": row.get("bbr.bw_hi[0]"), "hi_1": row.get("bbr.bw_hi[1]")}
        self.now["cycle"] = row.get("bbr.cycle_idx")
        self.now |= {"v1": row.get("bbr.bw.s[0].v"), "gain": row.get("bbr.pacing_gain")}

    def __getitem__(self, name: str) -> int | None:
        value: int | None = self.row.get(name)
        return value

    def after(self, name: str) -> int | None:
        """What the field was after the event; None: no row says it."""
        if name.startswith("bbr."):
            return self.following.get(name)
        return self[f"out.{name}"]

    def sums(self, *terms: str) -> int | None:
        """Fields added up, those with a minus taken away."""
        found = [self[term.removeprefix("-")] for term in terms]
        if None in found:
            return None
        signs = [-1 if term.startswith("-") else 1 for term in terms]
        return sum(sign * (value or 0) for sign, value in zip(signs, found, strict=True))

    @property
    def max_bw(self) -> int:
        """bbr_max_bw(), as decisions up to here have left it."""
        names = ("v1",) if self.version == 1 else ("hi_0", "hi_1")
        return max(self.now[name] or 0 for name in names)

    @property
    def bw(self) -> int:
        """bbr_bw(): v1 takes to a policer's estimate before anything else asks for it."""
        if self.version > 1:
            return min(self.max_bw, self.now["bw_lo"] or 0)
        return (self.after("bbr.lt_bw") or 0) if self.after("bbr.lt_use_bw") else self.max_bw

    def path(self, controls: bool) -> Path:
        """What volumes are worked out of; controls: the model is updated, cwnd is to be set."""
        mode, cycle = self["bbr.mode"], self.now["cycle"]
        if controls:
            mode, cycle = self.after("bbr.mode"), self.after("bbr.cycle_idx")
        legacy = "" if self.version == 2 else "LEGACY_"
        return Path(
            version=self.version,
            gso_max_size=self._constants[f"GSO_{legacy}MAX_SIZE"],
            min_rtt_us=self.now["min_rtt"] or 0,
            bw=self.bw,
            max_bw=self.max_bw,
            pacing_rate=self.now["pacing"] or 0,
            pacing_shift=self["sk.sk_pacing_shift"] or 0,
            pacing_gain=self.now["gain"] or 0,
            mss=self["tp.mss_cache"] or 0,
            probes_up=mode == 2 and cycle == 0,
            init_cwnd=_V1_INIT_CWND if self.version == 1 else self["bbr.init_cwnd"] or 0,
        )

    def follow(self, code: Code, said: Evidence) -> None:
        """Take over what a decision made of the bandwidths and of the gain."""
        if code.name == "BWHI_SAMPLE":
            # v1 keeps a maximum of a window, which its row after the event has.
            self.now["v1"] = self.after("bbr.bw.s[0].v")
            self.now["hi_1"] = max(self.now["hi_1"] or 0, said["bw"])
        elif code.name == "BWHI_ADVANCE":
            self.now["hi_0"], self.now["hi_1"] = self.now["hi_1"], 0
        elif code.name in ("LT_USE_RATIO", "LT_USE_DIFF"):
            self.now["gain"] = _UNIT
        elif code.name in ("DOWN_BY_LOSS", "DOWN_BY_ECN"):
            self.now["cycle"] = _DOWN  # the new phase is asked for its end at once
        self.was_reset |= code.name == "SIGNALS_RESET"


def links(code: Code, said: Evidence) -> Iterator[tuple[str, int | None, int]]:
    """Yield what a decision changes: the field, its old value (None: not said), the new one."""
    name = code.name
    if name.startswith("LO_RESET_"):
        yield "bw_lo", said["bw_lo"], UNSET
        yield "inflight_lo", said["inflight_lo"], UNSET
    elif name.startswith("BWLO_RESET_"):
        return  # LO_RESET_ follows, and says the same of both bounds
    elif name == "BWLO_INIT":
        yield "bw_lo", UNSET, said["max_bw"]
    elif name == "INFLO_INIT":
        yield "inflight_lo", UNSET, said["cwnd"]
    elif name == "HI_LOST_INFINITY":
        yield "inflight_hi", None, UNSET
    elif name == "LO_UNDO":
        yield "bw_lo", said["old_bw"], said["new_bw"]
        yield "inflight_lo", said["old"], said["new"]
    elif name == "CONSERVE_START":
        yield "cwnd", said["old"], said["new"]
    elif "new_cwnd" in said:
        yield "cwnd", said["cwnd"], said["new_cwnd"]
    elif name == "PRTT_MIN_NEW" or code.about in LINKED:
        about = "probe_rtt_min" if name == "PRTT_MIN_NEW" else code.about
        old, new = _NAMES.get(about, ("old", "new"))
        if new in said:
            yield about, said.get(old), said[new]
