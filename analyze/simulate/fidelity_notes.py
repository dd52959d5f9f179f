"""For which paths a simulation was compared with kernels, and what is not modelled.

Every number of a simulation is printed with this. What comparisons came to is counted from
known_fidelity.py; README.md of this folder has the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...probes.base.plurals import in_words, plural
from .known_errors import TOLERANCES
from .known_fidelity import KINDS, MILESTONES, KnownRun, kinds_of, of_kind, shipped
from .world.world_setup import PathSetup, Setup
from .world.worlds import PATH_PACKET

# Of what was compared: paths' shortest round trips, with marks half and twice the one there is;
# and, of FIFOs, the buffers in BDP (recorded are 0.2 to 4; a fit of the largest came to 5.7).
_ROUND_TRIPS_US = 9_900, 80_000
_MARKED_ROUND_TRIPS_US = 1_500, 6_000
_BUFFERS_BDP = 0.15, 6.0
# A random loss was compared if a recording's is this near to it; or more.
_NEAR_LOSS = 2.0
# Packets in a token bucket; recorded ones have two, up to a part of one.
_MOST_BUCKET = 3

_GUESSED = "the path is fitted from the recording alone, for which intervals are wider"
_QUANTITIES = {
    "goodput_mbps": "goodput",
    "lost_packets": "losses",
    "rtt_p50_ms": "median RTT",
    "rtt_p95_ms": "95th percentile of RTTs",
}
_MILESTONES = {
    "startup_end_s": "STARTUP's end",
    "first_inflight_hi": "first inflight_hi",
    "probes_per_min": "probes per minute",
    "too_high": "share of probes that go too high",
    "probe_rtts": "PROBE_RTTs",
    "share_up": "time in UP",
    "share_down": "time in DOWN",
    "share_cruise": "time in CRUISE",
    "share_probe_rtt": "time in PROBE_RTT",
}


def outside(setup: Setup) -> list[str]:
    """Why a simulation of this world may disagree with kernels; empty: no reason is known."""
    return [*_of_path(setup), *_of_flows(setup), *_of_kinds(setup)]


def _of_path(setup: Setup) -> Iterator[str]:
    path = setup.path
    round_trips = _MARKED_ROUND_TRIPS_US if path.marks_us or path.ecn else _ROUND_TRIPS_US
    if not 5_000_000 <= path.rate_bps <= 40_000_000:
        yield "no kernel's recording is near this rate"
    if not round_trips[0] <= path.rtt_us <= round_trips[1]:
        yield "no kernel's recording is near this round trip"
    if _has_other_buffer(path):
        yield "no kernel's recording has such a buffer"
    if not path.policer and path.burst_bytes > _MOST_BUCKET * (path.mss + path.headers):
        yield "no kernel's recording has such a token bucket"
    if path.jitter_us or path.aggregation_us or path.policer:
        yield "jitter, ACK aggregation and policers were never compared"
    if path.host_bps:
        yield "a slow link of the sender's own was compared with v1, v3 and CUBIC alone"
    changed = {what for _, what, _ in path.changes}
    if changed & {"rtt", "loss"}:
        yield "changes of the round trip and of the loss were never compared"
    if "outage" in changed:
        yield "an outage of the data alone was never compared"
    if "down" in changed:
        yield (
            "after an outage RTTs come out 5 to 10 % low from a recording whose hosts were quieter"
            " than usual"
        )


def _has_other_buffer(path: PathSetup) -> bool:
    """Whether a FIFO that drops at its end is shorter or longer than those that were recorded."""
    if path.policer or path.marks_us:
        return False
    size = path.limit_bytes or path.limit_packets * PATH_PACKET
    bdp = path.rate_bps * path.rtt_us / 8e6
    return size > 0 and not _BUFFERS_BDP[0] <= size / bdp <= _BUFFERS_BDP[1]


def _of_flows(setup: Setup) -> Iterator[str]:
    versions = {flow.version for flow in setup.flows} - {None}
    others = {flow.cc for flow in setup.flows if not flow.version}
    if any(flow.variant for flow in setup.flows):
        yield "no kernel runs these rules: only the sender and the path were compared"
    if len(setup.flows) > 2:
        yield "no kernel's recording has more than two flows on a path"
    if len(versions) > 1:
        yield "no kernel's recording has two versions of BBR on a path"
    if any(flow.extra_rtt_us for flow in setup.flows):
        yield "flows with round trips of their own were never compared"
    if "v1" in versions and setup.path.reorder:
        yield "with reordering it is chance whether v1 loses 40 packets in STARTUP or none"
    if "v2" in versions and setup.path.loss:
        yield "under random loss kernels' own runs of v2 differ by 8 % in goodput"
    if "v3" in versions and setup.path.loss:
        yield "under random loss kernels' own runs of v3 differ by 6 % in goodput"
    if "cubic" in others:
        yield "CUBIC was compared beside BBR in one scenario" + (
            "" if versions else ", never alone"
        )
    if others & {"reno", "vegas"}:
        yield "Reno and Vegas were never compared"
    if "dctcp" in others:
        yield "DCTCP was compared alone, on one path; without ECN it is Reno"
    if any(flow.unseen for flow in setup.flows):
        yield "others on the path are taken for one flow with CUBIC"
    if any(flow.kind in ("fixed-size", "on-off") for flow in setup.flows):
        yield "transfers of fixed size and pauses were never compared"


def _of_kinds(setup: Setup) -> Iterator[str]:
    """What recordings of this world's kinds came to, and which of its kinds none has."""
    compared, kinds = of_kind(setup), kinds_of(setup)
    for version in sorted({flow.version for flow in setup.flows if flow.version}):
        own = [run for run in compared if run.version == version]
        if lacking := [kind for kind in kinds if not any(kind in run.kinds for run in own)]:
            yield f"no recording of {version} has {in_words([KINDS[kind] for kind in lacking])}"
        elif not any(set(run.kinds) == set(kinds) for run in own):
            words = in_words([KINDS[kind] for kind in kinds])
            yield (
                f"no recording of {version} has {words} at once"
                if kinds
                else f"{version} was compared on other paths alone"
            )
        if setup.path.loss and not any(_is_near(run, setup.path.loss) for run in own):
            yield f"no recording of {version} with so much random loss was compared"
        for group in dict.fromkeys(run.kinds for run in own):
            yield from _of_group(version, [run for run in own if run.kinds == group])


def _is_near(run: KnownRun, loss: float) -> bool:
    """Whether this recording's random loss is like `loss`; what loses less is no harder."""
    least = min(one.loss for one in shipped() if one.version == run.version and one.loss)
    return run.loss > 0 and (loss <= least or 1 / _NEAR_LOSS <= loss / run.loss <= _NEAR_LOSS)


def _of_group(version: str, runs: Sequence[KnownRun]) -> Iterator[str]:
    """A sentence for what came out beyond the tolerance, if anything did."""
    words = []
    for name, called in _QUANTITIES.items():
        apart = [run.off(name) for run in runs if not run.agrees(name)]
        words += [f"{called} {_off(apart)}"] if apart else []
    if words:
        out = sum(any(not run.agrees(name) for name in _QUANTITIES) for run in runs)
        with_kinds = (
            f"with {in_words([KINDS[kind] for kind in runs[0].kinds])} " if runs[0].kinds else ""
        )
        yield (
            f"{with_kinds}{version} came out with {in_words(words)} of what was recorded, in {out}"
            f" of {plural(len(runs), 'recording')}"
        )


def _off(apart: Sequence[float]) -> str:
    """How much of what was recorded, from the lowest to the highest: 'at 83 to 107 %'."""
    ends = [f"{100 * (1 + end):.0f}" for end in (min(apart), max(apart))]
    return f"at {' to '.join(dict.fromkeys(ends))} %"


def reasons(*setups: Setup) -> list[str]:
    """Why simulations of these worlds may disagree with kernels; empty: no reason is known."""
    return [*dict.fromkeys(reason for setup in setups for reason in outside(setup))]


def statement(*setups: Setup, guessed: bool = False) -> str:
    """What is known of numbers from these worlds: how comparisons came out, or that none was made.

    `guessed`: the path was fitted from the recording alone, see fitted_path.py.
    """
    return sentence(reasons(*setups), *setups, guessed=guessed)


def sentence(why: Sequence[str], *setups: Setup, guessed: bool = False) -> str:
    """The words of `statement`, from the result of `reasons`."""
    runs = list({run.run: run for setup in setups for run in of_kind(setup)}.values())
    text = f"does not hold here: {'; '.join(why)}" if why else _compared(len(runs))
    text += _of_milestones(runs)
    return f"{text}; {_GUESSED}" if guessed else text


def _compared(runs: int) -> str:
    """That all agree, and by what measure."""
    shares = {name: f"{100 * one.share:.0f} %" for name, one in TOLERANCES.items()}
    return (
        f"compared with {plural(runs, 'recording')} of kernels on such paths (bbrscope simulate"
        f" --fidelity): in all, goodput lies within the seeds' range or {shares['goodput_mbps']},"
        f" losses {shares['lost_packets']} or"
        f" {plural(int(TOLERANCES['lost_packets'].room), 'packet')}, RTTs {shares['rtt_p50_ms']}"
    )


def _of_milestones(runs: Sequence[KnownRun]) -> str:
    """What BBR did otherwise than in these recordings, by version; empty: nothing."""
    out: dict[str, list[str]] = {}
    for run in runs:
        names = [_MILESTONES[name] for name in MILESTONES if not run.agrees(name)]
        names += [] if run.same_cause else ["why STARTUP ended"]
        out.setdefault(run.version, []).extend(names)
    words = [
        f"{whose}'s {in_words([*dict.fromkeys(names)])}" for whose, names in out.items() if names
    ]
    return f"; in some recordings {in_words(words)} came out otherwise" if words else ""
