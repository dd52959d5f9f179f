"""``bbrscope demo``: the whole job on a shipped recording."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.plurals import plural
from ..text.screen import say

if TYPE_CHECKING:
    from subprocess import Popen

    from ...analyze.replay.flow_replay import FlowReplay
    from ...collect.store.store import Store

RECORDING = "v2_single_1bdp"
FOLDER = "bbrscope-demo"
# Lines of the story that are shown: the flow's start and its first probes.
EXCERPT = 14


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help=f"Folder to make [{FOLDER}, or {FOLDER}-2 ...].",
)
def command(output: Path | None) -> None:
    """Do the whole job on a shipped recording and show what to type next.

    Loads 25 s of a BBRv2 flow into a new store, replays it against the kernel, diagnoses it, tells
    how its story begins, and writes the HTML report. Nothing outside the new folder is touched,
    nothing is fetched.

    \b
    bbrscope demo
    bbrscope demo -o /tmp/look
    """
    from ...analyze.replay import warm
    from ...analyze.views.store_with_views import open_store

    folder = _make(output)
    compiling = warm.start("v2")  # ten seconds on the first run, beside the loading
    store = folder / "bbrscope.duckdb"
    with open_store(store) as opened:
        _ingest(opened)
        _replay(opened, compiling)
        _diagnose(opened)
        _explain(opened)
        report = _report(opened, folder)
    _next(store, report)


def _make(output: Path | None) -> Path:
    """Make a folder that was not there before.

    Raises:
        BbrscopeError: it is there already, or cannot be made.
    """
    from ...probes.base.errors import BbrscopeError

    if output is not None:
        candidates = iter([output])
    else:
        names = itertools.chain([FOLDER], (f"{FOLDER}-{number}" for number in itertools.count(2)))
        candidates = map(Path, names)
    for path in candidates:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BbrscopeError(
                f"cannot make the folder {path}: {error.strerror}", "name another: -o FOLDER"
            ) from error
        return path
    raise BbrscopeError(f"{output} exists", "name a new folder: -o FOLDER")


def _step(text: str) -> None:
    say(f"\n== {text}", bold=True)


def _ingest(store: Store) -> None:
    from ... import fixtures
    from ...collect.ingest.ingest import ingest
    from .ingest import describe

    _step("Ingest: a recording of a real BBRv2 kernel becomes tables")
    say(describe(ingest(store, fixtures.path(RECORDING)), store.path))


def _replay(store: Store, compiling: Popen[bytes]) -> None:
    from ...analyze.replay import keep_results as results
    from ...analyze.replay import replay_runs as session
    from ...analyze.views.materialize import materialize_replayed
    from ..text.progress_bar import progress

    _step("Replay: the estimator runs over the same inputs; does it agree with the kernel?")
    if compiling.poll() is None:
        _load_drawing()
    compiling.wait()
    run_ids = [store.run_id(RECORDING)]
    with progress(session.total_events(store.con, run_ids), "replaying") as advance:
        for flows in session.replay_runs(store.con, run_ids, advance=advance):
            results.keep(store, flows)
            for flow in flows:
                _agreement(flow)
    materialize_replayed(store, run_ids)


def _load_drawing() -> None:
    """Load what draws the report, which takes seconds that would else come after the replay."""
    from ..html.charts import vega

    vega.javascript()


def _agreement(flow: FlowReplay) -> None:
    """Say how the replay of a flow agreed, in both modes, and where it first did not."""
    for mode, result in flow.passes.items():
        say(
            f"flow {flow.flow}, {mode:8} {result.exact:>7,} of"
            f" {plural(result.compared, 'event')} exact in"
            " every field of struct bbr, snd_cwnd and sk_pacing_rate"
        )
        if flow.divergences[mode]:
            say(f"  first divergence: {flow.divergences[mode]}")


def _diagnose(store: Store) -> None:
    from ...analyze.diagnosis.engine import diagnose
    from ..text.findings.diagnosis_text import diagnosis_lines

    _step("Diagnose: is anything wrong with this flow?")
    diagnosis = diagnose(store.con, store.run_id(RECORDING))
    say("\n".join(diagnosis_lines(diagnosis)).rstrip())


def _explain(store: Store) -> None:
    from ...analyze.story import event_flows, event_story, names
    from ..text.stories.change_table import ChangeTable
    from ..text.stories.flow_story import header

    _step("Explain: how the flow began")
    flow = event_flows.flows_of(store.con, store.run_id(RECORDING))[0]
    table = ChangeTable(flow.zero_ns, flow.version)
    text = [
        *header(flow, names.KERNEL),
        *table.story(event_story.story(store.con, flow)),
    ]
    for line in text[:EXCERPT]:
        say(line)
    if len(text) > EXCERPT:
        say(f"      ...  {plural(len(text) - EXCERPT, 'more line')}: bbrscope explain {RECORDING}")


def _report(store: Store, folder: Path) -> Path:
    from .report import write_report

    _step("Report: the same, drawn")
    path = folder / f"{RECORDING}.html"
    size = write_report(store, store.run_id(RECORDING), path)
    say(f"{path}: {size / 1e6:.2f} MB, one file, no network needed")
    return path


def _next(store: Path, report: Path) -> None:
    _step("What to do next")
    quoted = shlex.quote(str(store))
    say(f"Open the report in a browser:  {report.resolve().as_uri()}")
    say("Or type:")
    say(f"  export BBRSCOPE_STORE={quoted}")
    say(f"  bbrscope explain {RECORDING} --only inflight_hi")
    say(f"  bbrscope explain {RECORDING} --at 12.3s")
    say(f"  bbrscope sql \"FROM phases WHERE run = '{RECORDING}' AND flow = 1 LIMIT 10\"")
    say("Your own recordings:  bbrscope doctor, bbrscope collect, bbrscope ingest BUNDLE")
