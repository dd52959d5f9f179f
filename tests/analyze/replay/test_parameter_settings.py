"""A user's settings become kernel units, or are refused in words."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.replay import run_params
from bbrscope.analyze.replay.parameter_settings import apply_settings, as_settings, parse_settings
from bbrscope.probes.base.errors import BbrscopeError


def test_percent_are_256ths_and_names_are_the_versions_own() -> None:
    assert parse_settings(["loss_thresh=5%", "full_loss_cnt=3"], "v3") == {
        "loss_thresh": 13,
        "full_loss_cnt": 3,
    }
    assert parse_settings(["startup_pacing_gain=710"], "v3") == {"high_gain": 710}


def test_one_of_eight_pacing_gains_is_set_and_the_others_stay() -> None:
    values = apply_settings({"pacing_gain": [320, 192, *[256] * 6]}, {"pacing_gain.3": 300})
    assert values["pacing_gain"] == [320, 192, 256, 300, *[256] * 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loss_thresh", "no '='"),
        ("losses=1", "no such parameter"),
        ("full_loss_cnt=5%", "not a fraction"),
        ("loss_thresh=many", "not a number"),
        ("loss_thresh=nan%", "not a number"),
        ("loss_thresh=1e999%", "not a number"),
        ("loss_thresh=2048", "out of range"),
        ("HZ=0", "out of range"),
    ],
)
def test_what_the_kernel_could_not_hold_is_refused(text: str, words: str) -> None:
    with pytest.raises(BbrscopeError) as caught:
        parse_settings([text], "v3")
    assert words in caught.value.fact
    assert caught.value.way_out


def test_what_the_bitfields_of_v2_could_not_hold_is_refused_where_v2_runs() -> None:
    for text, most in (("loss_thresh=500%", 255), ("full_loss_cnt=16", 15)):
        with pytest.raises(BbrscopeError) as caught:
            parse_settings([text], "v2")
        assert caught.value.way_out == f"between 0 and {most}"
        with pytest.raises(BbrscopeError):
            parse_settings([text], "v3", readers=["v3", "v2-patched"])
        assert parse_settings([text], "v2", readers=["v3"])


def test_what_no_version_that_runs_reads_is_refused() -> None:
    for name, version in (("loss_thresh", "v1"), ("undo", "v3"), ("plb_enabled", "v2")):
        with pytest.raises(BbrscopeError) as caught:
            parse_settings([f"{name}=1"], version)
        assert "would change nothing" in caught.value.fact
        assert parse_settings([f"{name}=1"], version, readers=["a variant"]) == {name: 1}
    assert parse_settings(["loss_thresh=5%"], "v1", readers=["v1", "v3"]) == {"loss_thresh": 13}


def test_what_a_version_never_reads_is_what_its_code_does_not_name() -> None:
    drawn = {"bw_probe_rand_rounds", "bw_probe_rand_us"}  # before the callbacks run
    for version, unread in params.UNREAD.items():
        read = _named_by(version) | (drawn if version != "v1" else set())
        assert unread == params.PARAMETERS.keys() - read, version


def _named_by(version: str) -> set[str]:
    """Parameters that bbr_init() and dispatch() of a version, or what these call, name."""
    module = import_module(f"bbrscope.analyze.bbr.versions.{version}")
    waiting = [module.bbr_init, module.dispatch]
    seen: set[int] = set()
    names: set[str] = set()
    while waiting:
        function = waiting.pop()
        code = inspect.unwrap(getattr(function, "py_func", function))
        if id(code) in seen or not inspect.isfunction(code):
            continue
        seen.add(id(code))
        names |= set(code.__code__.co_names)
        waiting += [
            code.__globals__[one] for one in code.__code__.co_names if one in code.__globals__
        ]
    return names & params.PARAMETERS.keys()


@pytest.mark.parametrize(
    "rule", [{"no_such": 1}, {"HZ": 0}, {"cwnd_min_target": 1 << 31}, {"pacing_gain.1": 2048}]
)
def test_a_recordings_own_rules_are_those_that_the_kernel_could_hold(rule: dict[str, int]) -> None:
    manifest = {"constants": {"HZ": 250}, "rules": {"cwnd_min_target": 8}}
    assert run_params.of_manifest(manifest, "v3")["cwnd_min_target"] == 8
    with pytest.raises(BbrscopeError) as caught:
        run_params.of_manifest(manifest | {"rules": rule}, "v3")
    assert next(iter(rule)) in caught.value.fact


def test_all_that_a_simulation_changed_is_read_again_from_its_manifest() -> None:
    usual = params.DEFAULTS["v1"] | {"HZ": 250}
    own = usual | {"cwnd_min_target": 8, "pacing_gain": [284, 230, *[256] * 6]}
    rules = as_settings(own, usual)
    assert rules["pacing_gain.1"] == 230
    assert run_params.of_manifest({"constants": {"HZ": 250}, "rules": rules}, "v1") == own
