"""Which BBR is recorded: found by size, chosen by the default, refused when it cannot be told."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.bundle.rungs import LADDER, RUNGS
from bbrscope.collect.record import filters
from bbrscope.collect.record.captures import place
from bbrscope.collect.record.host import bpftrace, ladder, target
from bbrscope.collect.record.host.ss_sockets import socket_lines
from bbrscope.collect.record.process_sockets import HowToSee
from bbrscope.probes import known
from bbrscope.probes.attach import Attach, Host
from bbrscope.probes.base.errors import HostError
from bbrscope.probes.bbr_versions import VERSIONS
from bbrscope.probes.program import Program

SO_COOKIE = 57  # include/uapi/asm-generic/socket.h


def made(version: str, module: str = "", ambiguous: tuple[str, ...] = ()) -> target.Target:
    kind = VERSIONS[version]
    return target.Target(kind, module, known.layout(version), ("sk", "rs"), ambiguous, "made up")


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(target, "CONGESTION", tmp_path)
    return tmp_path / "tcp_congestion_control"


def test_the_only_bbr_is_taken_whatever_the_default_is(default: Path) -> None:
    default.write_text("cubic\n")
    only = made("v3")
    assert target.choose([only]) is only


@pytest.mark.parametrize(("name", "version"), [("bbr", "v1"), ("bbr2", "v2")])
def test_of_two_the_default_congestion_control_is_taken(
    name: str, version: str, default: Path
) -> None:
    default.write_text(f"{name}\n")
    assert target.choose([made("v1"), made("v2")]).version.name == version


def test_of_two_none_is_guessed_when_the_default_is_neither(default: Path) -> None:
    default.write_text("cubic\n")
    with pytest.raises(HostError, match="more than one BBR"):
        target.choose([made("v1"), made("v2")])
    assert target.choose([made("v1"), made("v2")], "v2").version.name == "v2"


def test_a_callback_whose_name_occurs_twice_is_refused_with_its_name(default: Path) -> None:
    default.write_text("bbr\n")
    with pytest.raises(HostError, match="bbr_cwnd_event exists more than once in vmlinux"):
        target.choose([made("v1", ambiguous=("bbr_cwnd_event",))])


def test_probes_that_landed_in_another_module_are_named(tmp_path: Path) -> None:
    """The kernel's list of traced functions: without a module, a function is built in."""
    v2 = made("v2", "tcp_bbr2")
    lines = [f"{name} [tcp_bbr2] (1) R   D  \ttramp: 0xffffffffc0" for name in v2.version.functions]
    (tmp_path / "enabled_functions").write_text("\n".join(lines))
    assert target.misplaced(v2, tmp_path) == []
    wrong = [
        line.replace("bbr_cwnd_event [tcp_bbr2]", "bbr_cwnd_event [tcp_bbr]") for line in lines
    ]
    (tmp_path / "enabled_functions").write_text("\n".join(wrong))
    assert target.misplaced(v2, tmp_path) == ["bbr_cwnd_event"]
    assert target.misplaced(made("v3"), tmp_path) == list(VERSIONS["v3"].functions)
    assert target.misplaced(v2, tmp_path / "unmounted") == list(v2.version.functions)


def test_a_name_that_two_modules_have_rules_out_kprobes() -> None:
    two = dataclasses.replace(made("v2", "tcp_bbr2"), shared=("bbr_cwnd_event",))
    attach, reason = ladder.kprobe(tool(), two)
    assert attach is None
    assert "bbr_cwnd_event" in reason


def test_no_bbr_is_reported_with_the_ways_to_have_it_loaded(default: Path) -> None:
    available = default.with_name("tcp_available_congestion_control")
    available.write_text("reno cubic\n")
    with pytest.raises(target.NotLoadedError, match="no BBR is loaded") as raised:
        target.choose([])
    assert "--load-module" in raised.value.way_out
    assert "--wait" in raised.value.way_out


def test_a_bbr_of_another_making_is_reported(default: Path) -> None:
    default.with_name("tcp_available_congestion_control").write_text("reno bbr\n")
    with pytest.raises(HostError, match="no BBR to record") as raised:
        target.choose([])
    assert not isinstance(raised.value, target.NotLoadedError)
    assert "inet_diag" in raised.value.way_out


def tool(**changes: object) -> bpftrace.Bpftrace:
    facts: dict[str, object] = {
        "path": "/usr/bin/bpftrace",
        "version": "0.17.0",
        "keyword": "kfunc",
        "exit_keyword": "kretfunc",
        "argument": "args->",
        "has_fentry": True,
        "has_kprobe": True,
        "has_jiffies": True,
        "has_monotonic": False,
        "raw_tracepoints": False,
        "info": "",
    }
    return bpftrace.Bpftrace(**{**facts, **changes})  # type: ignore[arg-type]  # facts are typed above


def test_the_ladder_goes_from_everything_to_ss() -> None:
    steps = ladder.ladder(tool(), made("v1", "tcp_bbr"), "none")
    assert [step.rung for step in steps] == ["fentry", "kprobe", "tcp_probe", "inet_diag"]
    assert steps[0].attach is not None
    assert steps[0].attach.entry == "kfunc"
    assert steps[0].attach.module == "tcp_bbr"


def test_a_rung_that_is_ruled_out_says_why() -> None:
    first = ladder.ladder(tool(has_fentry=False), made("v1"), "none")[0]
    assert first.attach is None
    assert "no fentry" in first.reason
    assert all(step.attach is None and step.reason for step in ladder.ladder(None, None, "none"))


def test_every_rung_says_what_it_answers() -> None:
    assert [step.rung for step in ladder.ladder(None, None, "none")] == [
        rung.name for rung in LADDER
    ]
    for rung in RUNGS.values():
        assert rung.can
        assert rung.cannot
        assert rung.replays != ("nothing can be replayed" in rung.cannot)


@pytest.mark.parametrize(
    ("select", "parts"),
    [
        (filters.Filters(ports=(443,)), ["skc_num == 443", f"skc_dport == {0xBB01}"]),
        (filters.Filters(addresses=("10.0.2.2",)), [f"skc_daddr == {0x0202000A}"]),
        (filters.Filters(addresses=("::1",)), ["skc_family == 10", "u6_addr32[3] == 16777216"]),
        (filters.Filters(), []),
    ],
)
def test_filters_become_conditions_in_the_kernels_own_byte_order(
    select: filters.Filters, parts: list[str]
) -> None:
    condition = filters.condition(select, HowToSee("args.")).text
    assert all(part in condition for part in parts)
    assert bool(parts) == bool(condition)


def test_kinds_of_filters_must_all_hold_and_values_of_one_kind_are_alternatives() -> None:
    select = filters.Filters(ports=(1, 2), addresses=("10.0.0.1",))
    first, second = filters.condition(select, HowToSee("args.")).text.split(" && ", 1)
    assert " == 1 ||" in first
    assert " == 2 ||" in first
    assert "skc_daddr" in second


@pytest.mark.parametrize(
    ("command", "address"),
    [
        (("iperf3", "-c", "192.0.2.7", "-p", "5201"), "192.0.2.7"),
        (("curl", "-o", "/dev/null", "http://[2001:db8::1]:80/big"), "2001:db8::1"),
        (("sh", "-c", "ip netns exec a iperf3 -c 10.0.0.1. & sleep 2; " * 9), None),
        (("curl", "http://[not an address/"), None),
        (("true", "x" * 64 + "." + "y" * 64), None),
        (("sleep",), None),
    ],
)
def test_the_route_is_that_of_the_first_host_the_command_names(
    command: tuple[str, ...], address: str | None
) -> None:
    assert place.address_in(command) == address


def test_ss_is_asked_with_the_same_filters_and_all_of_them_must_hold() -> None:
    select = filters.Filters(ports=(1, 2), addresses=("192.0.2.1", "2001:db8::1"))
    (expression,) = select.ss()
    ports, addresses = expression.split(" and ")
    assert ports == "( sport = :1 or dport = :1 or sport = :2 or dport = :2 )"
    ends = "src 192.0.2.1 or dst 192.0.2.1 or src [2001:db8::1] or dst [2001:db8::1]"
    assert addresses == f"( {ends} )"
    assert filters.Filters().ss() == [""]


def test_a_socket_is_one_line_whatever_its_programs_and_cgroups_are_called() -> None:
    first = 'ESTAB 0 0 10.0.0.1:5 10.0.0.2:6 users:(("a\nb",pid=7,fd=3)) sk:1 cgroup:/x <-> ts bbr'
    other = "FIN-WAIT-1 0 12 [::1]:5 [::1]:6 sk:2 cgroup:/y\u2028z\x0c/\n\nw <-> cubic"
    listening = "LISTEN 0 128 *:22 *:* sk:3"
    lines = socket_lines(f"{first}\n{other}\n{listening}\n")
    assert [line.split()[0] for line in lines] == ["ESTAB", "FIN-WAIT-1", "LISTEN"]
    assert 'users:(("a b",pid=7,fd=3)) sk:1' in lines[0]
    assert lines[1].endswith("cgroup:/y z / w <-> cubic")
    assert socket_lines("") == []


@pytest.mark.parametrize(
    ("version", "number"),
    [("0.23.2", (0, 23, 2)), ("0.20.2-1ubuntu4.3", (0, 20, 2)), ("unknown", ())],
)
def test_a_version_is_read_as_numbers(version: str, number: tuple[int, ...]) -> None:
    assert tool(version=version).number == number


@pytest.mark.parametrize("page", [4096, 65536])
@pytest.mark.parametrize("cpus", [1, 2, 64, 192])
@pytest.mark.parametrize("shared", [True, False])
def test_the_buffer_is_as_large_as_asked_for_on_every_machine(
    shared: bool, cpus: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ring for all CPUs from bpftrace 0.19 on; 256M were 4 MB there with 64 CPUs."""
    monkeypatch.setattr(bpftrace.os, "cpu_count", lambda: cpus)
    monkeypatch.setattr(bpftrace.os, "sysconf", lambda _name: page)
    asked = 1 << 30
    pages = int(bpftrace.environment(asked, shared)["BPFTRACE_PERF_RB_PAGES"])
    assert pages & (pages - 1) == 0
    memory = pages * page * (1 if shared else cpus)
    assert asked / 2 < memory <= asked


def test_rings_are_shared_where_bpftrace_and_kernel_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"--version": "bpftrace v0.18.1", "--info": "  kfunc: yes\n  ringbuf: yes\n"}

    def run(*commands: list[str]) -> list[subprocess.CompletedProcess[str]]:
        return [
            subprocess.CompletedProcess(command, 0, answers.get(command[1], ""), "")
            for command in commands
        ]

    monkeypatch.setattr(bpftrace, "run", run)
    assert not bpftrace.ask(str(tmp_path / "old"), 1).shared_ring
    answers["--version"] = "bpftrace v0.20.2"
    assert bpftrace.ask(str(tmp_path / "new"), 2).shared_ring
    answers["--info"] = "  fentry: yes\n  ringbuf: no\n"
    assert not bpftrace.ask(str(tmp_path / "old kernel"), 3).shared_ring
    answers["--info"] = "  fentry: yes\n"
    answers["--version"] = "bpftrace v0.27.1"
    assert bpftrace.ask(str(tmp_path / "newest"), 4).shared_ring


def test_tries_of_bpftrace_run_side_by_side(tmp_path: Path) -> None:
    """One after the other, the first would wait for the second for ever."""
    os.mkfifo(place := tmp_path / "fifo")
    reads = ["sh", "-c", f"read line < {place}; echo read $line"]
    writes = ["sh", "-c", f"echo this > {place}; exit 3"]
    first, second = bpftrace.run(reads, writes)
    assert (first.stdout, second.returncode) == ("read this\n", 3)


def test_a_try_that_cannot_run_leaves_none_of_the_others_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = [], bpftrace.start

    def kept(command: list[str]) -> subprocess.Popen[str]:
        started.append(start(command))
        return started[-1]

    monkeypatch.setattr(bpftrace, "start", kept)
    (missing := tmp_path / "no program").touch(0o644)
    with pytest.raises(HostError, match="cannot run here: Permission denied"):
        bpftrace.run(["sleep", "600"], [str(missing)])
    with pytest.raises(HostError, match="sleep 600 did not answer within 0 s"):
        bpftrace.run(["sleep", "600"], timeout_s=0.1)
    assert [process.returncode for process in started] == [-9, -9]


def test_fentry_of_a_module_needs_a_bpftrace_that_finds_its_functions() -> None:
    attach, reason = ladder.fentry(tool(version="0.14.0"), made("v1", "tcp_bbr"))
    assert attach is None
    assert "0.14.0 cannot attach fentry to a module's functions" in reason
    built_in, _ = ladder.fentry(tool(version="0.14.0"), made("v1"))
    assert built_in is not None
    assert not built_in.names_modules
    named, _ = ladder.fentry(tool(version="0.17.0"), made("v1", "tcp_bbr"))
    assert named is not None
    assert named.names_modules


class Types:
    """BTF with these functions and, of structs, only where icsk_ca_priv lies."""

    def __init__(self, functions: dict[str, list[str]]) -> None:
        self.functions = functions

    def parameters(self, name: str) -> list[str] | None:
        return self.functions.get(name)

    def member_offset(self, _struct: str, _member: str) -> int:
        return 1400


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        (("bbr_cwnd_event",), ("bbr_cwnd_event", "")),
        (("bbr_cwnd_event_tx_start",), ("", "bbr_cwnd_event_tx_start")),
        (
            ("bbr_cwnd_event", "bbr_cwnd_event_tx_start"),
            ("bbr_cwnd_event", "bbr_cwnd_event_tx_start"),
        ),
    ],
)
def test_each_callback_for_cwnd_events_is_recorded_that_the_kernel_has(
    has: tuple[str, ...], expected: tuple[str, str]
) -> None:
    types: Any = Types({name: ["sk"] for name in has})
    version = target._with_cwnd_events(VERSIONS["v3"], types)
    assert (version.cwnd_event, version.tx_start) == expected
    assert [name for name in version.functions if "cwnd_event" in name] == list(has)
    host = Host(known.layout("v3"), known.CB)
    text = Program(version, host, Attach("fentry", parameters=("sk", "ack", "flag", "rs"))).text()
    for name in ("bbr_cwnd_event", "bbr_cwnd_event_tx_start"):
        assert (f"fentry:vmlinux:{name}\n" in text) == (name in has)


@pytest.mark.parametrize(
    ("release", "is_known"), [("5.10.0-32-amd64", True), ("5.4.0", True), ("5.15.0", False)]
)
def test_a_module_of_linux_5_10_is_recorded_by_mainlines_layout(
    release: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such kernels have no types of modules; Debian 11's is one of them."""
    monkeypatch.setattr(target.os, "uname", lambda: SimpleNamespace(release=release))
    types: Any = Types({})
    symbols = [(name, "tcp_bbr") for name in VERSIONS["v1"].functions]
    found = target._without_types(types, "tcp_bbr", symbols)
    assert (found is not None) == is_known
    if found is not None:
        assert (found.version.name, found.layout.size, found.layout.priv) == ("v1", 104, 1400)
        assert found.parameters == ("sk", "rs")
        assert "the kernel has no types of it" in found.reason
    assert target._without_types(types, "tcp_bbr", symbols[1:]) is None
    assert target._without_types(types, "tcp_bbr2", symbols) is None
