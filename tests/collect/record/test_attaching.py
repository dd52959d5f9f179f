"""How a program that is attached now differs from one that is printed for later."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.record import attaching
from bbrscope.collect.record.host import host_facts, ladder
from bbrscope.collect.record.host.bpftrace import Bpftrace
from bbrscope.collect.record.host.target import lines_with
from bbrscope.collect.record.plan import RecordingPlan
from bbrscope.probes.attach import Attach

BY_NAME = f"*(uint64 *){ladder.NAMED_JIFFIES}"


def bpftrace(version: str) -> Bpftrace:
    return Bpftrace("", version, "kfunc", "kretfunc", "args->", True, True, False, True, False, "")


@pytest.mark.parametrize(
    ("version", "address", "jiffies", "expected"),
    [
        ("0.17.0", 0xFFFFFFFF82C05B00, BY_NAME, "*(uint64 *)kptr(0xffffffff82c05b00)"),
        # What kptr_restrict hides must not be read at 0: bpftrace itself then says that it failed.
        ("0.17.0", 0, BY_NAME, BY_NAME),
        ("0.11.3", 0xFFFFFFFF82C05B00, BY_NAME, BY_NAME),
        ("0.23.2", 0xFFFFFFFF82C05B00, "jiffies", "jiffies"),
        ("0.17.0", None, "", ""),
    ],
)
def test_jiffies_are_read_at_their_address_where_it_is_known(
    version: str,
    address: int | None,
    jiffies: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ladder, "kernel_address", {"jiffies": address}.__getitem__)
    attach = Attach("kprobe", jiffies=jiffies)
    assert attaching.with_address(attach, bpftrace(version)).jiffies == expected


def test_lines_are_found_by_what_they_hold_each_once_and_the_last_without_its_end() -> None:
    text = b"1 t bbr_init_bbr\n2 D jiffies\n3 t bbr_main\t[tcp_bbr]\n4 t tcp\n5 T bbr"
    lines = [b"1 t bbr_init_bbr\n", b"3 t bbr_main\t[tcp_bbr]\n", b"5 T bbr"]
    assert list(lines_with(b"bbr", text)) == lines
    assert list(lines_with(b" jiffies\n", text)) == [b"2 D jiffies\n"]
    assert list(lines_with(b"reno", text)) == []


def test_a_symbol_that_the_kernel_does_not_name_is_nowhere() -> None:
    assert ladder.kernel_address("no_such_symbol_of_the_kernel") is None


@pytest.mark.parametrize("shared", [False, True])
def test_cpus_that_are_brought_up_meanwhile_have_no_ring_of_their_own(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has one that went and came back."""
    online = {0, 1, 2}
    monkeypatch.setattr(host_facts, "online_cpus", lambda: set(online))
    tool = dataclasses.replace(bpftrace("0.17.0"), shared_ring=shared)
    unused: Any = SimpleNamespace(bpftrace=tool)
    recorded = attaching.Attaching(RecordingPlan(Path("run")), unused, unused, lambda _text: None)
    recorded.tracer = unused
    assert recorded.notes == []
    online ^= {2, 3}
    note = "what CPUs print that were brought up meanwhile is lost by bpftrace 0.17.0: CPU "
    assert recorded.notes == ([] if shared else [f"{note}3"])
    online.add(2)
    assert recorded.notes == ([] if shared else [f"{note}2, 3"])
    online -= {2, 3}
    assert recorded.notes == ([] if shared else [f"{note}2, 3"])
    # One that went and is back by the next note, as it was looked at between.
    for _ in range(2):
        online ^= {1}
        recorded.look(0)
    assert recorded.notes == ([] if shared else [f"{note}1, 2, 3"])


def test_the_cpus_that_run_are_those_that_the_kernel_lists(tmp_path: Path) -> None:
    listed = tmp_path / "online"
    for text, cpus in (("0-2,5,7-8\n", {0, 1, 2, 5, 7, 8}), ("0\n", {0}), ("\n", set())):
        listed.write_text(text)
        assert host_facts.online_cpus(listed) == cpus
    assert host_facts.online_cpus(tmp_path / "none") == set()
