"""The programs: what they record is what a replay needs, in every way of writing them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bbrscope.collect.record.output.check import CHAIN
from bbrscope.probes import bbr_layout as layout
from bbrscope.probes import bbr_versions, known, shared_words, shipped
from bbrscope.probes.attach import (
    VALUES_IN_LIMIT,
    VALUES_ON_STACK,
    WORDS_IN_BUFFER,
    WORDS_ON_STACK,
    Attach,
    Host,
    return_address_bytes,
)
from bbrscope.probes.packed_columns import is_packed, parts_of
from bbrscope.probes.program import Program

VERSIONS = ("v1", "v2", "v3")
RUNGS = ("fentry", "kprobe", "tcp_probe")
TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"


def program(
    version: str, rung: str, condition: str = "", values: int = VALUES_IN_LIMIT, words: int = 0
) -> str:
    parameters = ("sk", "rs") if version == "v2" else ("sk", "ack", "flag", "rs")
    host = Host(known.layout(version), known.CB, marks=True)
    attach = Attach(rung, parameters=parameters, values_per_row=values, words_per_row=words)
    return Program(bbr_versions.VERSIONS[version], host, attach, condition).text()


def headers(text: str) -> dict[str, list[str]]:
    lines = re.findall(r'printf\("#([^"\\]*)\\n"\)', text)
    return {line.split(",")[0]: line.split(",")[1:] for line in lines}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_column_that_the_reference_recordings_have_is_recorded(version: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = TRACES / f"{version}_single_1bdp" / "events.csv.zst"
    if not path.exists():
        pytest.skip(f"needs the reference recordings: {path}")
    with path.open("rb") as raw:
        start = zstandard.ZstdDecompressor().stream_reader(raw).read(1 << 16).decode()
    wanted: dict[str, set[str]] = {}
    for line in start.splitlines():
        if line.startswith("#"):
            tag, *names = line[1:].split(",")
            wanted.setdefault(tag.rstrip("0123456789"), set()).update(names)
    found: dict[str, set[str]] = {}
    for tag, names in headers(program(version, "fentry")).items():
        found.setdefault(tag.rstrip("0123456789"), set()).update(names)
    for tag, names in wanted.items():
        assert names <= found[tag], (tag, names - found[tag])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    ("limit", "words"),
    [(VALUES_IN_LIMIT, 0), (VALUES_ON_STACK, 0), (VALUES_ON_STACK, WORDS_ON_STACK)],
)
def test_every_row_prints_as_many_values_as_its_header_names(
    version: str, rung: str, limit: int, words: int
) -> None:
    text = program(version, rung, values=limit, words=words)
    heads = headers(text)
    printed = re.findall(r'printf\("([A-Z]+[0-9]?),([^"]*)\\n",\s*(.*?)\);', text, re.DOTALL)
    assert {tag for tag, _, _ in printed} == set(heads)
    for tag, conversions, values in printed:
        count = len(conversions.split(","))
        assert count == len(heads[tag])
        assert count == len(split(values)), tag
        assert count <= max(limit, words) + 2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rung", RUNGS)
def test_packed_rows_hold_every_field_in_half_as_many_values(version: str, rung: str) -> None:
    def by_letters(text: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for tag, names in headers(text).items():
            found.setdefault(tag.rstrip("0123456789"), []).extend(n for n in names if n != "ns")
        return found

    plain = by_letters(program(version, rung))
    packed = by_letters(program(version, rung, words=WORDS_ON_STACK))
    assert packed.keys() == plain.keys()
    for tag, columns in packed.items():
        fields = [
            part
            for column in columns
            for part in ([p.name for p in parts_of(column)] if is_packed(column) else [column])
        ]
        assert sorted(set(fields)) == sorted(set(plain[tag])), tag
    often = "T" if rung == "tcp_probe" else "M"
    assert len(packed[often]) < 0.65 * len(plain[often])
    assert {*CHAIN, "seqno"} <= shared_words.PLAIN  # what check() reads where a recording is made


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rung", RUNGS)
def test_one_program_alone_prints_a_row_longer_than_the_stack_takes(
    version: str, rung: str
) -> None:
    """The buffer for longer rows is shared by all programs of a CPU."""
    host = Host(known.layout(version), known.CB, marks=True)
    attach = Attach(rung, words_per_row=VALUES_IN_LIMIT, words_of_main=WORDS_IN_BUFFER)
    text = Program(bbr_versions.VERSIONS[version], host, attach).text()
    longer = {tag for tag, names in headers(text).items() if len(names) > VALUES_IN_LIMIT + 2}
    assert longer == (set() if rung == "tcp_probe" else {"M"})
    assert text.count('printf("M,') == (rung != "tcp_probe")


def split(values: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    parts, depth = [""], 0
    for letter in values:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@pytest.mark.parametrize("rung", ["fentry", "kprobe"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_callback_is_attached_once_and_main_and_init_at_their_exit_too(
    version: str, rung: str
) -> None:
    text = program(version, rung)
    kind = bbr_versions.VERSIONS[version]
    points = re.findall(r"^(fentry|fexit|kprobe|kretprobe):(?:vmlinux:)?(\w+)$", text, re.MULTILINE)
    entries = [name for how, name in points if how in ("fentry", "kprobe")]
    exits = [name for how, name in points if how in ("fexit", "kretprobe")]
    assert sorted(set(entries) - {"tcp_mark_skb_lost"}) == sorted(kind.functions)
    assert len(entries) == len(set(entries))
    assert sorted(exits) == sorted([kind.main, kind.init])


@pytest.mark.parametrize("rung", RUNGS)
def test_a_condition_guards_every_probe_that_prints(rung: str) -> None:
    text = program("v3", rung, "$sk->__sk_common.skc_num == 443")
    bodies = re.findall(r"^\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    printing = [body for body in bodies if "$sk" in body and "printf" in body]
    assert printing
    for body in printing:
        # Only sockets that met the condition have a number.
        guard = "@seq[(uint64)$sk] && " if "delete(@seq[(uint64)$sk]); }" in body else "== 443"
        assert body.index(guard) < body.index("printf")
    assert sum("== 443" in body for body in printing) >= len(printing) - 1


@pytest.mark.parametrize("rung", RUNGS)
def test_bpftrace_knows_a_signal_to_itself_by_the_hosts_number(rung: str) -> None:
    """In a container, bpftrace 0.22's own pid is another: its end was only known by a timeout."""
    text = program("v1", rung)
    assert "@self[0] = (uint64)((struct task_struct *)curtask)->tgid;" in text
    own = re.findall(r"(?<![\w.>])pid\b", re.sub(r"//.*", "", text))
    assert own == []


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_socket_older_than_the_recording_is_introduced_by_its_first_event_of_any_kind(
    version: str,
) -> None:
    """An idle connection's is cwnd_event(), and not the ACK that follows."""
    kind = bbr_versions.VERSIONS[version]
    for function in (kind.cwnd_event, kind.set_state, kind.ssthresh, kind.undo_cwnd):
        text = program(version, "fentry").split(f":{function}\n")[1].split("\n}\n")[0]
        before, _, after = text.partition('printf("N,')
        # One that was just made for a packet has no addresses yet: I introduces it.
        assert "if ($n == 0 && (uint64)$sk->__sk_common.skc_node.pprev != 0) {" in before
        assert after
        assert 'printf("' not in before


def test_no_program_chooses_between_values_of_maps() -> None:
    """bpftrace 0.23 (Debian 13) dies of a segmentation fault at that."""
    version = bbr_versions.VERSIONS["v1"]
    host = Host(known.layout("v1"), 40)
    text = Program(version, host, Attach("fentry"), backs_off=True).text()
    assert "@share[" in text
    assert re.search(r"\?\s*@|\?[^;]*:\s*@", text) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shipped_program_is_what_the_writer_writes_and_explains_itself(version: str) -> None:
    path = shipped.FOLDER / shipped.FILES[version]
    assert path.read_text() == shipped.text(version), "run python -m bbrscope.probes.shipped"
    for section in ("PURPOSE", "RUN", "ROWS", "COST", "BLIND SPOTS", "EXAMPLE"):
        assert f" * {section}\n" in path.read_text()


def test_a_program_in_the_folder_is_generated_and_says_so_or_is_written_by_hand() -> None:
    texts = {path.name: path.read_text() for path in shipped.FOLDER.glob("*.bt")}
    generated = {name for name, text in texts.items() if "\n * Generated: " in text}
    assert generated == set(shipped.FILES.values())
    assert all("python -m bbrscope.probes.shipped" in texts[name] for name in generated)


def test_a_renamed_cwnd_event_prints_the_only_event_it_stands_for() -> None:
    from dataclasses import replace

    kind = replace(bbr_versions.VERSIONS["v1"], cwnd_event="", tx_start=bbr_versions.TX_START)
    text = Program(kind, Host(known.layout("v1"), known.CB), Attach("fentry")).text()
    body = text[text.index(f":{bbr_versions.TX_START}\n") :]
    assert "args.event" not in text
    assert "(uint64)$sk, 0, $n," in body


@pytest.mark.skipif(shutil.which("bpftrace") is None, reason="needs bpftrace")
@pytest.mark.parametrize("version", VERSIONS)
def test_bpftrace_accepts_the_flat_struct_and_packs_it(version: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: bpftrace loads a program")
    struct_bbr = known.layout(version)
    last = [leaf for leaf in struct_bbr.leaves if not leaf.bitfield_size][-1]
    text = (
        layout.definition(struct_bbr)
        + '\nBEGIN { printf("%d\\n", sizeof(struct bbrscope_bbr)); exit(); }\n'
    )
    path = tmp_path / "size.bt"
    path.write_text(text)
    done = subprocess.run(["bpftrace", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size = int(re.search(r"^\d+$", done.stdout, re.MULTILINE)[0])  # type: ignore[index]  # asserted by use
    assert size >= last.bit_offset // 8 + last.size


@pytest.mark.skipif(shutil.which("bpftrace") is None, reason="needs bpftrace")
@pytest.mark.parametrize(
    ("version", "words"),
    [("v2", 0), ("v3", 0), *((version, WORDS_ON_STACK) for version in VERSIONS)],
)
def test_rows_of_the_patched_kernels_structs_fit_the_stack_of_this_bpftrace(
    version: str, words: int, tmp_path: Path
) -> None:
    """No kernel here has v2 or v3: their longest rows are printed from the struct of any socket."""
    if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("needs root and BTF: bpftrace loads a program")
    struct_bbr = known.layout(version)
    state = Host(struct_bbr, 40).layout.columns
    names = [*state, *bbr_versions.VERSIONS["v1"].socket] if words else state[:VALUES_ON_STACK]
    attach = Attach(
        "tcp_probe",
        clock="nsecs",
        values_per_row=VALUES_ON_STACK,
        words_per_row=words,
        jiffies="",
        stack_limit=0,
    )
    writer = Program(bbr_versions.VERSIONS[version], Host(struct_bbr, 40), attach)
    tags = ("M", "S", "E") if words else ("M0", "M1", "M2")
    rows = [writer.printer.statements(tag, names, {}) for tag in tags]
    body = ["$sk = (struct sock *)0;", "$icsk = (struct inet_connection_sock *)$sk;"]
    body += ["$tp = (struct tcp_sock *)$sk; $words = (struct bbrscope_words *)((uint64)$sk + 8);"]
    body += ["$bbr = (struct bbrscope_bbr *)((uint64)$sk + 8);", *rows, "exit();"]
    path = tmp_path / "rows.bt"
    definitions = f"{layout.definition(struct_bbr)}\n{shared_words.definition(struct_bbr)}\n"
    path.write_text(definitions + "BEGIN {\n" + "\n".join(body) + "\n}\n")
    done = subprocess.run(["bpftrace", str(path)], capture_output=True, text=True, check=False)
    assert "stack limit" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^[MSE][012]?,", done.stdout, re.MULTILINE)) >= 3


@pytest.mark.parametrize(
    ("machine", "at_return"), [("x86_64", 'reg("sp") - 8'), ("aarch64", 'reg("sp")')]
)
def test_a_call_has_the_same_key_at_entry_and_at_return_on_every_machine(
    machine: str, at_return: str
) -> None:
    """x86 pushes the return address before the entry probe; arm64 keeps it in its link register."""
    pushed = return_address_bytes(machine)
    attach = Attach("kprobe", parameters=("sk", "rs"), return_address_bytes=pushed)
    host = Host(known.layout("v1"), known.CB, marks=True)
    text = Program(bbr_versions.VERSIONS["v1"], host, attach).text()
    for _, body in re.findall(r"^(kretprobe:\w+)\n\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        assert f"@calls[{at_return}];" in body
        assert f"delete(@calls[{at_return}]);" in body
    assert text.count('@calls[reg("sp")] = (uint64)$sk;') == 2
