"""Rows become events: exactly, whatever their layout, order across sockets, and buffer sizes."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bbrscope import fixtures
from bbrscope.collect.events import read_events as events_module
from bbrscope.collect.events.lines import text_source
from bbrscope.collect.events.read_events import EventReader
from bbrscope.probes.base.errors import BundleError

Lines = list[str]
Plain = Callable[[Lines], list[dict[str, Any]]]
Make = Callable[..., Path]

HEAD = [
    "#M0,ns,sk,tp.delivered,rs.acked_sacked,tp.mss_cache,tp.snd_cwnd",
    "#M1,ns,sk,bbr.mode,bbr.lt_bw",
    "#X,ns,sk,tp.snd_cwnd,jiffies32",
    "#I,ns,sk,sport,dport,daddr,tp.snd_cwnd",
    "#IX,ns,sk,tp.snd_cwnd,bbr.mode,bbr.lt_bw",
    "#E0,ns,sk,event",
    "#E1,ns,sk,bbr.mode,bbr.lt_bw",
]


def main_rows(ns: int, sk: str = "a", delivered: int = 1, mode: int = 0, bw: int = 7) -> Lines:
    """Rows of one call of main."""
    return [
        f"M0,{ns},{sk},{delivered},1,1448,10",
        f"M1,{ns + 10},{sk},{mode},{bw}",
        f"X,{ns + 20},{sk},11,5",
    ]


def init_rows(ns: int, sk: str = "a", addresses: str = "20756,39639,33556746") -> Lines:
    """Rows of one call of init."""
    return [f"I,{ns},{sk},{addresses},10", f"IX,{ns + 5},{sk},10,0,0"]


def read(folder: Path, **options: Any) -> tuple[list[dict[str, Any]], EventReader]:
    """Read a bundle's events as dictionaries without the columns that are NULL."""
    reader = EventReader(folder / "events.csv.zst", "events.csv", **options)
    rows = [row for batch in reader.batches() for row in batch.to_pylist()]
    return [{k: v for k, v in row.items() if v is not None} for row in rows], reader


def codes(reader: EventReader) -> list[tuple[str, int | None, int | None]]:
    """Return the findings as code, line and number of the event."""
    return [(f.code, f.line, f.seq) for f in reader.notes]


@pytest.mark.parametrize("name", fixtures.names())
def test_a_shipped_recording_reads_as_a_simple_reader_reads_it(
    name: str, read_lines: Callable[[Path], Lines], plain_events: Plain
) -> None:
    folder = fixtures.path(name)
    assert read(folder)[0] == plain_events(read_lines(folder))


def test_a_readers_batches_go_with_it_and_do_not_wait_for_the_collector_of_cycles() -> None:
    gc.disable()
    try:
        reader = read(fixtures.path("v1_x_lt"))[1]
        gone = weakref.ref(reader)
        del reader
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_every_loss_free_recording_reads_as_a_simple_reader_reads_it(
    traces: Path, read_lines: Callable[[Path], Lines], plain_events: Plain
) -> None:
    names = [path.parent.name for path in traces.glob("v*/manifest.json")]
    names.remove("v3_ecn_codel")  # lost a row and repeats another; tested below
    assert len(names) > 30
    for name in names:
        assert read(traces / name)[0] == plain_events(read_lines(traces / name)), name


@pytest.mark.parametrize(("text", "slots"), [(1 << 13, 1030), (1 << 15, 2000)])
def test_small_buffers_change_nothing(
    text: int, slots: int, spur_lines: Lines, plain_events: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are cut anywhere by the text buffer, events anywhere by the batch."""
    monkeypatch.setattr(text_source, "TEXT_BYTES", text)
    monkeypatch.setattr(events_module, "SLOTS_PER_BATCH", slots)
    assert read(fixtures.path("v2_x_spur"))[0] == plain_events(spur_lines)


def test_any_split_of_an_event_over_rows_reads_the_same(
    make_bundle: Make, spur_lines: Lines, plain_events: Plain
) -> None:
    """All of main in one row, in two, in five."""
    wanted = [event for event in plain_events(spur_lines) if event["kind"] == "main"]
    heads = {line.split(",")[0][1:]: line.split(",")[1:] for line in spur_lines if line[0] == "#"}
    names = heads["M0"] + heads["M1"][2:]
    params = [f"#P,{','.join(heads['P'])}", f"#I,{','.join(heads['I'])}"]
    rows = []
    for line in spur_lines:
        tag, *values = line.split(",")
        if tag == "M0":
            rows.append(values)
        elif tag == "M1":
            rows[-1] += values[2:]
    for parts in (1, 2, 5):
        cuts = [round(2 + i * (len(names) - 2) / parts) for i in range(parts + 1)]
        spans = list(itertools.pairwise(cuts))
        tags = ["M"] if parts == 1 else [f"M{3 * i}" for i in range(parts)]
        head = [
            ",".join([f"#{tag}", *names[:2], *names[low:high]])
            for tag, (low, high) in zip(tags, spans, strict=True)
        ]
        lines = [
            ",".join([tag, *row[:2], *row[low:high]])
            for row in rows
            for tag, (low, high) in zip(tags, spans, strict=True)
        ]
        found, reader = read(make_bundle([*params, *head, *lines], f"split{parts}"))
        assert codes(reader) == []
        assert len(found) == len(wanted)
        for event, expected in zip(found, wanted, strict=True):
            for name in names[2:]:
                column = name.replace("[", "_").replace("]", "").replace(".", "_")
                column = column.replace("sk_sk_", "sk_")
                assert event[column] == expected[column]


def test_sockets_may_be_interleaved_in_any_way(make_bundle: Make) -> None:
    streams = [
        [*init_rows(100, sk)]
        + [row for i in range(40) for row in main_rows(1000 * (i + 1), sk, i + 1)]
        for sk in ("a", "b", "ff1100000e7e0000")
    ]
    expected = {}
    for sk, stream in zip("abc", streams, strict=True):
        found, _ = read(make_bundle([*HEAD, *stream], f"alone_{sk}"))
        expected[sk] = [{k: v for k, v in e.items() if k not in ("flow", "line")} for e in found]
    random.seed(7)
    mixed: Lines = []
    pending = [list(stream) for stream in streams]
    while any(pending):
        mixed.append(random.choice([stream for stream in pending if stream]).pop(0))
    found, reader = read(make_bundle([*HEAD, *mixed], "mixed"))
    assert codes(reader) == []
    order = [info.sk for info in reader.flows()]
    for flow, sk in enumerate(order, 1):
        own = [e for e in found if e["flow"] == flow]
        stripped = [{k: v for k, v in e.items() if k not in ("flow", "line")} for e in own]
        assert stripped == expected["c" if len(sk) > 1 else sk]


def test_a_batch_of_thousands_of_open_sockets_is_bounded_and_complete(make_bundle: Make) -> None:
    """Every socket's last event lacks its exit, so none of them ever closes by itself."""
    count = 50_000
    rows = [line for i in range(1, count + 1) for line in main_rows(i * 1000, f"{i:x}")[:2]]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert len(found) == count
    assert {event["seq"] for event in found} == {0}
    assert sorted(event["flow"] for event in found) == list(range(1, count + 1))
    assert not any(event["complete"] for event in found)
    assert len(reader.flows()) == count


def test_an_address_used_again_begins_a_new_flow(make_bundle: Make) -> None:
    rows = [*init_rows(1), *main_rows(100), *init_rows(1000), *main_rows(2000)]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert [(e["flow"], e["seq"], e["kind"]) for e in found] == [
        (1, 0, "init"),
        (1, 1, "main"),
        (2, 0, "init"),
        (2, 1, "main"),
    ]
    assert [(f.generation, f.has_init, f.pre_init) for f in reader.flows()] == [
        (0, True, 0),
        (1, True, 0),
    ]


def test_events_on_a_zeroed_state_before_init_belong_to_its_flow(make_bundle: Make) -> None:
    zeroed = [*main_rows(1, bw=0), *main_rows(100, delivered=2, bw=3)]
    found, reader = read(make_bundle([*HEAD, *zeroed, *init_rows(1000)], "zeroed"))
    assert {e["flow"] for e in found} == {1}
    assert [(f.has_init, f.pre_init) for f in reader.flows()] == [(True, 2)]
    living = main_rows(1, bw=9)
    found, reader = read(make_bundle([*HEAD, *living, *init_rows(1000)], "living"))
    assert [e["flow"] for e in found] == [1, 2]
    assert [f.has_init for f in reader.flows()] == [False, True]


def test_a_half_event_is_dropped_and_named(make_bundle: Make) -> None:
    rows = [*main_rows(1), "M0,1000,a,2,1,1448,10", *main_rows(2000, delivered=3)]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert [e["ns"] for e in found] == [1, 2000]
    assert [e["seq"] for e in found] == [0, 1]
    assert codes(reader) == [("half_event", 11, 1), ("delivered_jump", 12, 1)]
    assert "M0 recorded, M1 missing" in reader.notes[0].detail
    assert reader.first_unpaired is not None
    assert reader.first_unpaired[0] == 11


def test_a_row_without_its_first_row_is_dropped_and_named(make_bundle: Make) -> None:
    rows = ["M1,1,a,0,7", "X,20,a,11,5", *main_rows(1000), "X,1500,a,12,5"]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert [e["exit_snd_cwnd"] for e in found] == [11]
    assert codes(reader) == [
        ("orphan_row", 8, None),
        ("orphan_row", 9, None),
        ("orphan_row", 13, 1),
    ]


def test_a_repeated_row_is_dropped_and_named(make_bundle: Make) -> None:
    first, second = main_rows(1), main_rows(1000, delivered=2)
    rows = [first[0], first[0], *first[1:], *second, second[-1]]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert [e["complete"] for e in found] == [True, True]
    assert [code for code, _, _ in codes(reader)] == ["duplicate_row", "duplicate_row"]


def test_a_missing_exit_leaves_the_event_incomplete(make_bundle: Make) -> None:
    rows = [*main_rows(1)[:2], *main_rows(1000, delivered=2)]
    found, reader = read(make_bundle([*HEAD, *rows]))
    assert [(e["complete"], e.get("exit_ns")) for e in found] == [(False, None), (True, 1020)]
    assert codes(reader) == []


def test_rows_far_apart_are_not_one_event_once_rows_are_known_to_be_lost(
    make_bundle: Make,
) -> None:
    late = ["M0,1000,a,1,1,1448,10", "M1,600000,a,3,7", "X,600020,a,12,5"]
    folder = make_bundle([*HEAD, *main_rows(1), *late])
    assert [e["ns"] for e in read(folder)[0]] == [1, 1000]
    found, reader = read(folder, suspect=True)
    assert [e["ns"] for e in found] == [1]
    assert {code for code, _, _ in codes(reader)} == {"half_event", "orphan_row"}


def test_a_row_of_another_event_ends_the_open_one(make_bundle: Make) -> None:
    """The exit came right behind it: it is that of a later call, whose other rows were lost."""
    head = [*HEAD, "#S0,ns,sk,new_state", "#S1,ns,sk,icsk_ca_state"]
    late = [*main_rows(1000, delivered=2)[:2], "S1,600000,a,0", "X,600020,a,12,5"]
    found, reader = read(make_bundle([*head, *main_rows(1), *late]))
    assert [(e["ns"], e["complete"]) for e in found] == [(1, True), (1000, False)]
    assert [code for code, _, _ in codes(reader)] == ["orphan_row", "orphan_row"]


def test_an_entry_that_the_kernel_skipped_leaves_later_calls_whole_however_long_they_take(
    make_bundle: Make,
) -> None:
    """Its exit row comes alone, and no number is missing: no row was lost."""
    head = [HEAD[0].replace("sk,", "sk,seqno,"), *HEAD[1:]]
    slow = ["M0,{ns},a,{number},{number},1,1448,10", "M1,{ns},a,0,7", "X,{late},a,11,5"]
    calls = [
        [line.format(ns=ns, late=ns + 400_000, number=number) for line in slow]
        for number, ns in enumerate((1000, 1_000_000, 2_000_000))
    ]
    rows = [*calls[0], "X,900000,a,12,5", *calls[1], *calls[2]]
    found, reader = read(make_bundle([*head, *rows]))
    assert [e["complete"] for e in found] == [True] * 3
    assert [code for code, *_ in codes(reader)] == ["orphan_row"]
    lost = make_bundle([*head, *calls[0], calls[1][2], *calls[2]], "lost")
    found, reader = read(lost)
    assert [e["complete"] for e in found] == [True, False]
    assert "sequence_gap" in {code for code, *_ in codes(reader)}


def test_calls_of_main_that_nothing_reported_show_in_tp_delivered(make_bundle: Make) -> None:
    rows = [*main_rows(1, delivered=5), *main_rows(1000, delivered=8)]
    _, reader = read(make_bundle([*HEAD, *rows]))
    assert codes(reader) == [("delivered_jump", 11, 1)]
    assert "grew by 3" in reader.notes[0].detail
    wrapped = [*main_rows(1, delivered=2**32 - 1), *main_rows(1000, delivered=0)]
    assert codes(read(make_bundle([*HEAD, *wrapped], "wrapped"))[1]) == []


def test_sequence_numbers_name_the_events_that_are_missing(make_bundle: Make) -> None:
    rows = [f"E,{1000 * n},a,{n},1" for n in (0, 1, 4, 5)] + ["E,9000,b,7,1", "E,9500,b,0,1"]
    found, reader = read(make_bundle(["#E,ns,sk,seqno,event", *rows]))
    assert len(found) == 6
    assert codes(reader) == [("sequence_gap", 4, 2)]
    assert "before this event 2 of its socket are missing" in reader.notes[0].detail


def test_lost_messages_are_counted_and_chatter_is_not(make_bundle: Make) -> None:
    rows = ["", "Attaching 13 probes...", *HEAD, *main_rows(1), "Lost 12 events", "Lost 3 events"]
    found, reader = read(make_bundle([*rows, HEAD[0], *main_rows(1000, delivered=2)]))
    assert len(found) == 2
    assert reader.lost_reported == 15
    assert codes(reader) == [("lost_message", 13, None), ("lost_message", 14, None)]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ("20756,39639,33556746", {"sport": 5201, "dport": 55194, "daddr": "10.9.0.2"}),
        ("20756,39639,fd00::9", {"sport": 5201, "dport": 55194, "daddr": "fd00::9"}),
        ("0,65535,::ffff:10.9.0.2", {"sport": 0, "dport": 65535, "daddr": "10.9.0.2"}),
        ("256,1,10.9.0.2", {"sport": 1, "dport": 256, "daddr": "10.9.0.2"}),
    ],
)
def test_ports_and_addresses_are_decoded(
    addresses: str, expected: dict[str, Any], make_bundle: Make
) -> None:
    _, reader = read(make_bundle([*HEAD, *init_rows(1, addresses=addresses)]))
    assert reader.flows()[0].addresses == expected


def test_both_families_and_older_sockets_are_identified(make_bundle: Make) -> None:
    names = "sport,dport,daddr,family,saddr,saddr6,daddr6"
    head = [f"#I,ns,sk,{names},tp.snd_cwnd", "#IX,ns,sk,bbr.mode", f"#N,ns,sk,{names}", *HEAD[:3]]
    rows = [
        "N,1,a,20756,256,0,10,0,fd00::1,fd00::2",
        *main_rows(2, "a"),
        "I,100,b,20756,256,33556746,2,33620234,::,::,10",
        "IX,101,b,0",
        "N,200,a,1,1,0,10,0,fd00::7,fd00::8",
    ]
    _, reader = read(make_bundle([*head, *rows[:-1]]))
    assert [flow.addresses for flow in reader.flows()] == [
        {"sport": 5201, "dport": 1, "saddr": "fd00::1", "daddr": "fd00::2"},
        {"sport": 5201, "dport": 1, "saddr": "10.1.1.2", "daddr": "10.9.0.2"},
    ]


BAD_ROWS = [
    ("M0,1,a,1,1,1448", "M0 has 5 columns, the header names 6"),
    ("M0,1,a,1,1,1448,10,9", "M0 has 7 columns, the header names 6"),
    ("M0,1,a,1,1,1448,4294967296", "tp.snd_cwnd of M0 is 4294967296, outside 0..4294967295"),
    ("M0,1,a,1,1,65536,10", "tp.mss_cache of M0 is 65536, outside 0..65535"),
    ("M0,1,a,1,-1,1448,10", "rs.acked_sacked of M0 is -1, outside 0..4294967295"),
    ("M0,1,a,1,x,1448,10", "rs.acked_sacked of M0 is 'x', not a number"),
    ("M0,1,,1,1,1448,10", "sk of M0 is '', not a number"),
    ("Q,1,a,1", "there is no header line for rows of 'Q'"),
    ("garbage", "neither a row nor a header nor a message: 'garbage'"),
    ("#M0,ns,sk,tp.delivered", "the header changes the columns of 'M0'"),
    ("#Y,ns,sk", "the header changes the columns of 'Y'"),
    ("I,5000,a,70000,1,1,10", "sport of I is 70000, outside 0..65535"),
    ("I,5000,a,1,1,nowhere,10", "I has no address but"),
    ("I,5000,a,1,1,99999999999,10", "I has no address but"),
]


@pytest.mark.parametrize(("row", "words"), BAD_ROWS)
def test_an_impossible_row_is_refused_with_its_line(
    row: str, words: str, make_bundle: Make
) -> None:
    folder = make_bundle([*HEAD, *main_rows(1), row, *main_rows(9000, delivered=2)])
    with pytest.raises(BundleError) as caught:
        read(folder)
    assert caught.value.fact.startswith("events.csv, line 11: ")
    assert words in caught.value.fact
    assert "--salvage" in caught.value.way_out


@pytest.mark.parametrize(("row", "words"), BAD_ROWS)
def test_salvage_drops_an_impossible_row_and_keeps_the_rest(
    row: str, words: str, make_bundle: Make
) -> None:
    folder = make_bundle([*HEAD, *main_rows(1), row, *main_rows(9000, delivered=2)])
    found, reader = read(folder, salvage=True)
    assert [e["ns"] for e in found if e["kind"] == "main"] == [1, 9000]
    bad = [f for f in reader.notes if f.code == "bad_row"]
    assert [f.line for f in bad] == [11]
    assert words in bad[0].detail


def test_a_row_older_than_the_one_before_it_is_refused(make_bundle: Make) -> None:
    rows = [*main_rows(1000), *main_rows(2000, "b"), *main_rows(500, delivered=2)]
    folder = make_bundle([*HEAD, *rows])
    with pytest.raises(BundleError) as caught:
        read(folder)
    assert caught.value.fact == (
        "events.csv, line 14: M0 is older than the row before it of the same socket"
    )
    found, reader = read(folder, salvage=True)
    assert reader.backwards
    assert [e["ns"] for e in found] == [1000, 2000]
    assert [f.line for f in reader.notes if f.code == "bad_row"] == [14, 15, 16]


def test_a_stream_without_headers_or_rows_is_refused(make_bundle: Make) -> None:
    for lines, words in (
        ([], "has no header line (#TAG,column,...): it is empty"),
        (["M0,1,a,1"], "has no header line (#TAG,column,...) before line 1"),
        (["", "", "hello"], "before line 3"),
    ):
        with pytest.raises(BundleError) as caught:
            read(make_bundle(lines))
        assert words in caught.value.fact


def test_a_line_without_end_is_refused_in_bounded_memory(make_bundle: Make) -> None:
    with pytest.raises(BundleError, match="line 8: longer than"):
        read(make_bundle([*HEAD, "M0," + "1" * 10_000_000]))


def test_a_bomb_of_zeros_is_refused(make_bundle: Make) -> None:
    import zstandard

    with pytest.raises(BundleError, match="line 1: longer than"):
        read(make_bundle(zstandard.compress(bytes(300_000_000))))


def test_a_loop_that_repeats_after_gaps_finds_the_same_lines(traces: Path) -> None:
    """The kernel's own recordings: what was lost in them is found, and nothing else."""
    lossless = {"v1_loss_1pct", "v2_latecomer_2bdp", "v3_reorder"}
    for name in lossless:
        assert codes(read(traces / name)[1]) == []
    assert codes(read(traces / "lossy_v2_one_silent_miss")[1]) == [("delivered_jump", 17632, 5900)]
    assert codes(read(traces / "v3_ecn_codel")[1]) == [
        ("duplicate_row", 8193, 1658),
        ("orphan_row", 8194, 1818),
    ]
