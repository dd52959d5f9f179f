"""What is said of a simulation is what comparisons with kernels' recordings came to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.simulate import fidelity, fidelity_notes, known_fidelity
from bbrscope.analyze.simulate.fidelity_notes import outside, statement
from bbrscope.analyze.simulate.known_errors import TOLERANCES
from bbrscope.analyze.simulate.known_fidelity import KnownRun, as_json, kinds_of, shipped
from bbrscope.analyze.simulate.world.world_setup import Setup
from bbrscope.analyze.simulate.world.worlds import of_path, path_of

# A path of each kind, as options say it, and its changes.
PATHS: dict[str, tuple[str, tuple[tuple[int, str, float], ...]]] = {
    "loss": ("loss=1%", ()),
    "marks": ("rate=20mbit,rtt=3ms,buffer=20bdp", ()),
    "reorder": ("reorder=2%", ()),
    "rate": ("", ((1, "rate", 2e7),)),
    "down": ("", ((1, "down", 1e6),)),
    "acks": ("", ((1, "acks", 1e5),)),
}


def _world(kinds: tuple[str, ...], version: str, loss: float = 0.0) -> Setup:
    """A world of these kinds."""
    words = [PATHS[kind][0] for kind in kinds if kind in PATHS and PATHS[kind][0]]
    changes = tuple(change for kind in kinds if kind in PATHS for change in PATHS[kind][1])
    path = replace(path_of(",".join(words)), changes=changes)
    path = replace(path, marks_us=2000, ecn=True) if "marks" in kinds else path
    path = replace(path, loss=loss) if loss else path
    controls = [version] + [version] * ("shared" in kinds) + ["cubic"] * ("cubic" in kinds)
    setup = of_path(path, ",".join(controls), 10**6, 0)
    if "application" not in kinds:
        return setup
    slow = replace(setup.flows[0], kind="rate-limited", rate_bps=4_000_000)
    return replace(setup, flows=(slow, *setup.flows[1:]))


@pytest.mark.parametrize("known", shipped(), ids=lambda known: known.run)
def test_a_world_of_its_kind_says_what_came_out_otherwise(known: KnownRun) -> None:
    setup = _world(known.kinds, known.version, known.loss)
    assert kinds_of(setup) == known.kinds
    said = statement(setup)
    for name, called in fidelity_notes._QUANTITIES.items():
        if not known.agrees(name):
            assert f"{called} at " in said
            assert said.startswith("does not hold here: ")
    for name, called in fidelity_notes._MILESTONES.items():
        assert known.agrees(name) or called in said
    assert "no kernel's recording" not in said
    assert f"no recording of {known.version}" not in said


def test_the_table_of_the_docs_is_what_is_shipped() -> None:
    page = Path(known_fidelity.__file__).with_name("README.md").read_text()
    rows = [fidelity.Compared(one.run, one.recorded, one.simulated) for one in shipped()]
    *lines, agree = fidelity.as_markdown(rows).split("\n\n")[0].splitlines()
    for line in lines[2:]:
        assert f"{line}\n" in page
    counts = [int(cell) for cell in agree.split("|")[2:-1]]
    words = f"goodput agrees in {counts[0]}, losses in {counts[1]}, the RTT's median in {counts[2]}"
    assert f"Of the {len(rows)} that were simulated, {words} and its 95 % in {counts[3]};" in page


def test_a_gap_is_told_of_paths_like_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    values = dict.fromkeys((*TOLERANCES, *known_fidelity.MILESTONES), 10.0)
    seeds = dict.fromkeys(values, (10.0, 10.0, 10.0))
    plain = KnownRun("plain", "v3", (), 0.0, True, values, seeds)
    far = seeds | {"goodput_mbps": (5.0, 6.0, 7.0), "probe_rtts": (20.0, 20.0, 20.0)}
    lossy = replace(plain, run="lossy", kinds=("loss",), loss=0.01, simulated=far)
    near = replace(lossy, run="near", simulated=seeds)
    monkeypatch.setattr(known_fidelity, "shipped", lambda: (plain, lossy, near))
    monkeypatch.setattr(fidelity_notes, "shipped", lambda: (plain, lossy, near))
    said = statement(_world(("loss",), "v3"))
    gap = "v3 came out with goodput at 60 % of what was recorded, in 1 of 2 recordings"
    assert f"with random loss {gap}" in said
    assert said.endswith("; in some recordings v3's PROBE_RTTs came out otherwise")
    assert statement(_world((), "v3")).startswith("compared with 1 recording of kernels on such")
    assert "no recording of v3 has a change of rate" in statement(_world(("rate",), "v3"))
    assert "v1 was compared on other paths alone" in statement(_world((), "v1"))
    assert "with so much random loss" in statement(_world(("loss",), "v3", 0.03))
    assert "with so much random loss" not in statement(_world(("loss",), "v3", 0.001))


def test_what_is_shipped_is_written_again_as_it_is() -> None:
    file = Path(known_fidelity.__file__).with_name("known_fidelity.json")
    assert as_json(shipped()) == file.read_text().rstrip("\n")


@pytest.mark.parametrize(
    ("words", "changes", "fact"),
    [
        ("buffer=20bdp", (), "no kernel's recording has such a buffer"),
        ("rate=5mbit,rtt=20ms,buffer=0.1bdp", (), ""),  # two packets, 0.24 BDP
        ("rate=20mbit,buffer=0.1bdp", (), "no kernel's recording has such a buffer"),
        ("loss=5%", (), "no recording of v1 with so much random loss"),
        ("rtt=20ms,buffer=4bdp,loss=1%", (), ""),
        ("rtt=5ms", (), "no kernel's recording is near this round trip"),
        ("rtt=40ms", ((1, "rate", 2e7),), ""),
        ("rtt=40ms", ((1, "rtt", 8e4),), "changes of the round trip and of the loss"),
        ("loss=1%", ((1, "rate", 2e7),), "random loss and a change of rate at once"),
    ],
)
def test_a_path_that_was_never_compared_says_so(
    words: str, changes: tuple[tuple[int, str, float], ...], fact: str
) -> None:
    said = "; ".join(outside(of_path(replace(path_of(words), changes=changes), "v1", 10**6, 0)))
    assert fact in said
    assert bool(said) == bool(fact)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_what_is_chance_under_one_version_is_not_said_of_others(version: str) -> None:
    of_v1 = "with reordering it is chance whether v1 loses 40 packets"
    assert (of_v1 in statement(_world(("reorder",), version))) == (version == "v1")
