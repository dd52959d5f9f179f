"""The hand-sized program reads struct bbr where the kernel has it, and prints what it explains."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import pytest
from bbrscope.probes import btf, known, shipped

PROGRAM = shipped.FOLDER / "bbr1phases.bt"
EXAMPLE = shipped.FOLDER / "bbr1phases_example.txt"
BITS = {"unsigned int": 32, "unsigned long long": 64}
LINE = re.compile(
    r" *\d+  +\d+ -> +[\d.:a-f]+:\d+ +(-|[A-Z_]+) -> (STARTUP|DRAIN|UP|DOWN|CRUISE|PROBE_RTT) .*\d"
)


def members() -> dict[str, tuple[int, int]]:
    """Bit offset and width of every member of the program's struct, by C's rules."""
    body = re.search(r"struct bbr_v1 \{\n(.*?)\};", PROGRAM.read_text(), re.DOTALL)
    assert body is not None
    offset, places = 0, {}
    for kind, names in re.findall(
        r"^  (unsigned int|unsigned long long) ([^;]+);", body[1], re.MULTILINE
    ):
        for name in names.split(", "):
            bits = BITS[kind]
            bare, _, width = name.partition(" : ")
            bare, _, count = bare.rstrip("]").partition("[")
            if not width:
                offset = -(-offset // bits) * bits
            places[bare] = (offset, int(width or bits))
            offset += int(width or bits) * int(count or 1)
    return places


def test_the_structs_members_are_where_the_kernels_types_have_them() -> None:
    kernel = {
        leaf.path: (leaf.bit_offset, leaf.bitfield_size or 8 * leaf.size)
        for leaf in known.layout("v1").leaves
    }
    own = members()
    used = re.findall(r"\$bbr->(\w+)", PROGRAM.read_text())
    assert set(used) >= {"mode", "cycle_idx", "max_bw", "min_rtt_us"}
    for name in set(used) - {"max_bw"}:
        assert own[name] == kernel[name], name
    best, width = kernel["bw.s[0].v"]
    assert own["max_bw"] == (kernel["bw.s[0].t"][0], width)
    assert best == own["max_bw"][0] + width  # max_bw[1]


def test_the_program_explains_itself_on_a_hundred_lines_as_bpftraces_tools_do() -> None:
    text = PROGRAM.read_text()
    for section in ("PURPOSE", "USAGE", "ATTACHES TO", "COLUMNS", "COST", "BLIND SPOTS"):
        assert f" * {section}\n" in text
    for point in re.findall(r"^(kprobe:\w+)", text, re.MULTILINE):
        assert f" *   {point} " in text
    assert 60 <= len(text.splitlines()) <= 100


def test_the_example_is_what_the_program_prints() -> None:
    shown = [
        line for line in EXAMPLE.read_text().splitlines() if " -> " in line and line[:1] == " "
    ]
    assert len(shown) > 8
    assert all(LINE.fullmatch(line) for line in shown)


@pytest.mark.skipif(shutil.which("bpftrace") is None, reason="needs bpftrace")
def test_bpftrace_compiles_the_program(tmp_path: Path) -> None:
    command = ["bpftrace", "--emit-elf", str(tmp_path / "program.o"), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "root" in done.stderr or "BTF" in done.stderr:
        pytest.skip("needs root and BTF: bpftrace reads the kernel's types")
    assert done.returncode == 0, done.stderr
    assert b"kprobe:bbr_main" in (tmp_path / "program.o").read_bytes()


class FakeSocket:
    """Memory laid out as this kernel's struct sock, which a library function is called with.

    The program's probes move from the kernel's functions to two of libc's that take a pointer.
    """

    functions: ClassVar = {"bbr_main": "labs", "tcp_v4_destroy_sock": "atol"}

    def __init__(self) -> None:
        types = btf.load()
        self.memory = ctypes.create_string_buffer(16384)
        self.libc = ctypes.CDLL("libc.so.6")
        self.places = {
            name: types.member_offset(struct, name)
            for struct, name in (
                ("tcp_sock", "mss_cache"),
                ("tcp_sock", "snd_cwnd"),
                ("inet_connection_sock", "icsk_ca_priv"),
            )
        }
        self.common = {
            name: types.member_offset("sock_common", name)
            for name in ("skc_dport", "skc_num", "skc_family", "skc_daddr")
        }
        layout = known.layout("v1").leaves
        self.leaves = {layout_leaf.path: layout_leaf for layout_leaf in layout}

    def write(self, offset: int | None, value: int, size: int, order: str = "little") -> None:
        assert offset is not None
        self.memory[offset : offset + size] = value.to_bytes(size, order)

    def load(self, event: dict[str, int]) -> None:
        """Put one recorded event's values where the kernel has them."""
        for name in ("mss_cache", "snd_cwnd"):
            self.write(self.places[name], event[f"tp.{name}"], 4)
        state = 0
        for path, leaf in self.leaves.items():
            if f"bbr.{path}" in event:
                state |= event[f"bbr.{path}"] << leaf.bit_offset
        self.write(self.places["icsk_ca_priv"], state, 104)

    def call(self, kernel_function: str) -> None:
        function = getattr(self.libc, self.functions[kernel_function])
        function(ctypes.c_void_p(ctypes.addressof(self.memory)))


def recorded_acks(bundle: Path) -> list[dict[str, int]]:
    """The values of each M row of the largest flow of a recording, by the fields' names."""
    zstandard = pytest.importorskip("zstandard")
    with (bundle / "events.csv.zst").open("rb") as raw:
        lines = zstandard.ZstdDecompressor().stream_reader(raw).read().decode().splitlines()
    names: dict[str, list[str]] = {}
    flows: dict[str, list[dict[str, int]]] = {}
    for line in lines:
        tag, *values = line.split(",")
        if tag.startswith("#"):
            names[tag[1:]] = values
        elif tag in ("M", "M0", "M1"):
            row = dict(zip(names[tag], values, strict=True))
            acks = flows.setdefault(row.pop("sk"), [])
            if tag != "M1":
                acks.append({})
            acks[-1] |= {name: int(value) for name, value in row.items()}
    return max(flows.values(), key=len)


def phase_of(event: dict[str, int]) -> str:
    if event["bbr.mode"] == 2:
        return {0: "UP", 1: "DOWN"}.get(event["bbr.cycle_idx"], "CRUISE")
    return {0: "STARTUP", 1: "DRAIN", 3: "PROBE_RTT"}[event["bbr.mode"]]


@pytest.mark.skipif(shutil.which("bpftrace") is None, reason="needs bpftrace")
def test_given_the_acks_of_a_recording_the_program_prints_its_phase_changes(
    traces: Path, tmp_path: Path
) -> None:
    """The program itself runs; only the place that it is attached to is not the kernel's."""
    if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("needs root and BTF: bpftrace loads a program")
    acks = recorded_acks(traces / "v1_single_1bdp")
    socket = FakeSocket()
    socket.write(socket.common["skc_num"], 40000, 2)
    socket.write(socket.common["skc_dport"], 5201, 2, "big")
    socket.write(socket.common["skc_family"], 2, 2)
    socket.write(socket.common["skc_daddr"], 0x0A000202, 4, "big")
    program = tmp_path / "phases.bt"
    text = PROGRAM.read_text()
    maps = Path("/proc/self/maps").read_text().split()
    libc = next(word for word in maps if "libc.so" in word)
    for kernel_function, function in FakeSocket.functions.items():
        text = text.replace(f"\nkprobe:{kernel_function}\n", f"\nuprobe:{libc}:{function}\n")
    program.write_text(text)
    command = ["bpftrace", "-B", "line", "-p", str(os.getpid()), str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        assert tracer.stderr is not None
        for line in tracer.stdout:
            if b"FLOW" in line:
                break
        else:
            pytest.skip(f"no uprobes here: {tracer.stderr.read().decode()}")
        for event in acks:
            socket.load(event)
            socket.call("bbr_main")
        socket.call("tcp_v4_destroy_sock")
        socket.call("bbr_main")
        time.sleep(1)
        for _ in range(60):  # bpftrace 0.17 may overlook one
            if tracer.poll() is not None:
                break
            tracer.send_signal(signal.SIGINT)
            time.sleep(1)
        else:
            tracer.kill()
        printed = [line for line in tracer.stdout.read().decode().splitlines() if line.strip()]
    changes = [next(same) for _, same in groupby(acks, key=phase_of)]
    expected = [
        f"{event['bbr.bw.s[0].v'] * event['tp.mss_cache'] * 8000 >> 24}"
        f" {event['bbr.min_rtt_us']} {event['tp.snd_cwnd']}"
        for event in changes
    ]
    phases = [phase_of(event) for event in changes]
    assert {"STARTUP", "DRAIN", "UP", "DOWN", "CRUISE", "PROBE_RTT"} == set(phases)
    words = [line.split() for line in printed]
    assert all(line[1:4] == ["40000", "->", "10.0.2.2:5201"] for line in words)
    assert [line[6] for line in words] == [*phases, phases[-1]]
    assert [line[4] for line in words] == ["-", *phases[:-1], "-"]  # forgotten when destroyed
    assert [" ".join(line[7:]) for line in words[:-1]] == expected
