"""``bbrscope ingest``: load run bundles into the store."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from ...collect.bundle.rungs import RUNGS
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..options import gather, written_store_option
from ..text.screen import say

if TYPE_CHECKING:
    from ...collect.bundle.rungs import Rung
    from ...collect.ingest.outcome import Outcome
    from ...collect.ingest.parallel import Options
    from ...collect.store.store import Store


# What wrote the samples of a run, as table samples calls it, in words.
_SOURCES = {"kernel_log": "the kernel's log", "tcp_info": "tcp-info"}


@dataclass(frozen=True)
class IngestRequest:
    """Which bundles to load into which store, and how."""

    bundles: tuple[Path, ...]
    store: Path
    name: str | None
    replace: bool
    salvage: bool
    kind: str | None
    jobs: int | None
    no_packets: bool

    def options(self) -> Options:
        """Return what holds for every bundle."""
        from ...collect.ingest.parallel import Options

        return Options(self.replace, self.salvage, not self.no_packets, self.kind)


@click.command()
@click.argument(
    "bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path)
)
@written_store_option
@click.option("--as", "name", metavar="NAME", help="Name of the run [the bundle's own].")
@click.option("--replace", is_flag=True, help="Replace another run of the same name.")
@click.option("--salvage", is_flag=True, help="Keep the whole events of a damaged recording.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["bundle", "pcap", "ss", "kernel_log", "tcp_info"]),
    help="What the files are [recognised by their content].",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="How many bundles to load at once [one per CPU].",
)
@click.option("--no-packets", is_flag=True, help="Leave the packet capture aside: much faster.")
@gather(IngestRequest)
def command(request: IngestRequest) -> None:
    """Load run bundles: folders, or .tar.zst of one; or what you have already.

    Each bundle is loaded wholly or not at all, whatever becomes of the others. A bundle that the
    store has already changes nothing; only packets that an earlier ingest left aside are added.
    What a recording lacks (lost rows, half events) is printed and kept in the table
    capture_quality.

    Packets are dissected by tshark and joined to the events: see tables packets, streams and
    captures, views ack_timeline and loss_timeline.

    A packet capture by itself (pcap, pcapng), an archive of M-Lab's tcp-info, a log of what `ss
    -tin` printed over time, and a kernel's log with the lines of v2alpha's debug_with_printk become
    runs, too; plain, .gz or .zst. They hold packets or samples, so there is nothing to replay, but
    there are metrics.

    M-Lab keeps an archive for each connection. `cat` makes one file of many, and so one run of as
    many flows: a run costs 3 ms, however few its snapshots.

    \b
    bbrscope ingest recordings/*
    bbrscope ingest run.tar.zst --store lab.duckdb --as monday
    bbrscope ingest broken_run --salvage
    bbrscope ingest server.pcapng.gz
    bbrscope ingest ss.log dmesg.txt
    bbrscope ingest ndt-jfj6s_1577922304_0000000000A5E4D4.00000.jsonl.zst
    cat 2020/01/02/*.jsonl.zst > day.jsonl.zst; bbrscope ingest day.jsonl.zst
    """
    from ...analyze.views.store_with_views import open_for_loading

    bundles = request.bundles
    if request.name is not None and len(bundles) > 1:
        raise click.UsageError("--as names one run: give one BUNDLE with it")
    with open_for_loading(request.store, views_at_end=True) as opened:
        if len(bundles) == 1:
            outcome = _ingest(opened, bundles[0], request.name, request.options())
            say(describe(outcome, opened.path))
            return
        refused = _ingest_several(opened, request)
    if refused:
        raise BbrscopeError(
            f"{refused} of {plural(len(bundles), 'bundle')} not loaded, for what is said above",
            f"the others are in {request.store}" if refused < len(bundles) else "",
        )


def _ingest_several(opened: Store, request: IngestRequest) -> int:
    """Load bundles, several at once; return how many were refused."""
    from ...collect.ingest.parallel import default_jobs, ingest_many
    from ...collect.ingest.worker_shares import size_of
    from ..text.progress_bar import progress

    bundles, options = request.bundles, request.options()
    jobs = request.jobs or default_jobs(bundles)
    with (
        _noted_interrupt() as check,
        progress(sum(map(size_of, bundles)), "loading") as advance,
        # Closed while the store is open: what Ctrl-C leaves undone is rolled back.
        closing(ingest_many(opened, bundles, options, jobs, advance, check)) as outcomes,
    ):
        return _print_outcomes(opened, outcomes)


@contextmanager
def _noted_interrupt() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt if Ctrl-C came, however long ago.

    Raised at once, too; but where it meets a finalizer or a library's callback, Python drops it.
    """
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    usual = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)


def _print_outcomes(opened: Store, outcomes: Iterable[Outcome | BbrscopeError]) -> int:
    """Print what became of each bundle; return how many were not loaded."""
    refused = 0
    for outcome in outcomes:
        if isinstance(outcome, BbrscopeError):
            refused += 1
            say(f"{outcome.fact}\n  {outcome.way_out}", err=True)
        else:
            say(describe(outcome, opened.path))
    return refused


def _ingest(opened: Store, bundle: Path, name: str | None, options: Options) -> Outcome:
    from ...collect.bundle.bundle import EVENTS, PACKET_FILES
    from ...collect.ingest.ingest import ingest
    from ..text.progress_bar import progress

    stream = bundle / EVENTS
    total = (stream if stream.is_file() else bundle).stat().st_size if bundle.exists() else 0
    if options.packets and stream.is_file():
        captures = (bundle / capture for capture in PACKET_FILES)
        total += sum(path.stat().st_size for path in captures if path.is_file())
    with progress(total, bundle.name) as advance:
        seen = 0

        def report(done: int) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        return ingest(opened, bundle, name, progress=report, **vars(options))


def describe(outcome: Outcome, store: Path) -> str:
    """Return one line on a loaded bundle, and one on what it lacks."""
    if outcome.already:
        return f"{outcome.run}: already in {store}, nothing changed"
    rung = RUNGS.get(outcome.rung or "")
    text = f"{outcome.run}: {_contents(outcome, rung)}"
    answers = f"\n  {rung.name} cannot {rung.cannot}" if rung and not rung.replays else ""
    if not outcome.notes:
        return f"{text}, nothing missing{answers}"
    untold = "".join(f"  {sentence}\n" for sentence in outcome.left_out)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in outcome.notes.items())
    return (
        f"{text}{answers}\n{untold}  capture quality: {counts}\n"
        f'  details: bbrscope sql "FROM capture_quality JOIN runs USING (run_id) '
        f"WHERE run = '{outcome.run}'\""
    )


def _contents(outcome: Outcome, rung: Rung | None) -> str:
    """Return how much of what a bundle holds, in words."""
    flows = plural(outcome.flows, "flow")
    if outcome.events:
        what = "events" if rung is None or rung.replays else "samples of its state"
        text = f"{outcome.version}, {flows}, {outcome.events:,} {what}"
    else:
        text = f"{outcome.version}, {flows}, no BBR events" if outcome.version else "no BBR events"
    if outcome.samples:
        sources = " and ".join(_SOURCES.get(source, source) for source in outcome.sources)
        text += f", {plural(outcome.samples, 'sample')} of {sources}"
    if outcome.packets:
        text += f", {plural(outcome.packets, 'packet')}"
    if outcome.mains:
        text += f" (ACKs of {outcome.matched / outcome.mains:.2%} of main events)"
    if outcome.lost:
        text += f", {plural(outcome.lost, 'row')} lost"
    return text
