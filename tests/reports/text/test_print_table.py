"""Tables read well on a terminal and lose no digit on the way to a program."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.text import print_table

BIG = (1 << 64) - 1
TABLE = pa.table(
    {
        "run": pa.array(["a", None, 'h\x1b[31m\n\u202e,"x"']),
        "ns": pa.array([BIG, 1, None], pa.uint64()),
        "share": pa.array([0.123456789, float("nan"), None]),
        "ok": pa.array([True, False, None]),
        "kind": pa.array(["main", "init", "main"]).dictionary_encode(),
        "sum": pa.array([Decimal(1 << 70), None, Decimal(5)], pa.decimal128(38, 0)),
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
    }
)


def written(capsys: pytest.CaptureFixture[str], output_format: str) -> str:
    print_table.write_table(TABLE, output_format)
    return capsys.readouterr().out


def test_text_is_aligned_null_is_a_dash_and_nothing_commands_the_terminal() -> None:
    lines = print_table.render(TABLE).splitlines()
    assert lines[0].split() == ["run", "ns", "share", "ok", "kind", "sum", "list"]
    assert "18,446,744,073,709,551,615" in lines[2]
    assert lines[3].lstrip().startswith("-")
    assert "\\x1b[31m\\n\\u202e" in lines[4]
    assert "\x1b" not in "".join(lines)
    end = lines[0].index("ns") + 2
    assert all(line[end - 1] != " " and line[end : end + 2] == "  " for line in lines[2:])


def test_a_table_too_wide_for_the_terminal_becomes_records() -> None:
    text = print_table.render(TABLE, 40)
    assert text.startswith("row 1\n  run    a\n  ns     18,446,744,073,709,551,615\n")
    assert print_table.render(TABLE, 400) == print_table.render(TABLE)


def test_text_stops_after_many_rows_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(print_table, "MAX_ROWS", 2)
    text = print_table.render(pa.table({"n": [1, 2, 3]}))
    assert text.splitlines()[-1].startswith("... only the first 2 rows; --format csv")


def test_json_has_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(written(capsys, "json"))
    assert found[0]["ns"] == BIG
    assert found[0]["sum"] == 1 << 70
    assert found[1] == {
        "run": None,
        "ns": 1,
        "share": None,
        "ok": False,
        "kind": "init",
        "sum": None,
        "list": None,
    }
    assert found[2]["run"] == 'h\x1b[31m\n\u202e,"x"'


def test_csv_has_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(csv.DictReader(io.StringIO(written(capsys, "csv"))))
    assert found[0]["ns"] == str(BIG)
    assert found[0]["ok"] == "true"
    assert found[0]["list"] == "[1, 2]"
    assert found[2]["run"] == 'h\x1b[31m\n\u202e,"x"'
    assert found[2]["ns"] == ""


def test_csv_changes_nothing_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    hostile = "h\x1b[31m\n\u202e"
    print_table.write_table(pa.table({hostile: pa.array([hostile])}), "csv")
    (name,), (cell,) = csv.reader(io.StringIO(capsys.readouterr().out))
    assert name == cell == "h\\x1b[31m\n\\u202e"


def test_parquet_is_the_table_itself(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_table.write_table(TABLE, "parquet")
    found = pq.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert found.column("ns").to_pylist() == [BIG, 1, None]
    assert found.column_names == TABLE.column_names


@pytest.mark.parametrize(("output_format", "nothing"), [("json", "[]\n"), ("csv", "a\n")])
def test_no_rows_are_an_empty_answer(
    output_format: str, nothing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table.write_table(pa.table({"a": pa.array([], pa.int8())}), output_format)
    assert capsys.readouterr().out == nothing


def test_intervals_in_parquet_are_refused_with_a_way_out() -> None:
    column = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(BbrscopeError, match="intervals of column 'spent'") as refused:
        print_table.write_table(pa.table({"spent": column}), "parquet")
    assert "CAST" in refused.value.way_out


def test_wide_letters_are_counted_as_the_terminal_shows_them() -> None:
    assert print_table.text_width("abc") == 3
    assert print_table.text_width("\u4f60\u597d") == 4
    assert print_table.text_width("e\u0301") == 1


def test_times_that_python_has_no_object_for_are_text() -> None:
    """DuckDB's infinities are the largest numbers, and its years go to 294246."""
    stamps = pa.array([0, (1 << 63) - 1, -(1 << 63) + 1, 6249223180800000000], pa.timestamp("us"))
    table = print_table.listed(stamps)
    assert table[1:] == ["infinity", "-infinity", "200000-01-01T00:00:00.000000"]
    nested = pa.array([[{"t": (1 << 31) - 1}], None], pa.list_(pa.struct([("t", pa.date32())])))
    assert print_table.listed(nested) == [[{"t": "infinity"}], None]
    assert "infinity" in print_table.render(pa.table({"t": stamps}))


def test_a_name_is_one_line_for_whatever_reads_lines() -> None:
    text = "a\nb\x1b[2Jc\u2028d\u2029e\x85f\u202eg \u4f60"
    assert len(print_table.printable(text).splitlines()) == 1
    assert print_table.printable(text) == "a\\nb\\x1b[2Jc\\u2028d\\u2029e\\x85f\\u202eg \u4f60"
