"""The runs of an open store, for a notebook or a program: what `bbrscope.open` returns.

Every example below is run by the tests, on the recording ``fixtures/v2_x_spur``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...analyze.views.store_with_views import open_store
from ...collect.store.store import Store
from ...probes.base.closing import Closing
from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.plurals import plural
from .queries import query_error, runs_query
from .replayed import not_replayed, replay

if TYPE_CHECKING:
    import altair
    import duckdb
    import polars

    from ...analyze.diagnosis.engine import Diagnosis
    from ...analyze.replay.open_loop import OpenLoopAnswer
    from ...analyze.simulate.closed_loop import ClosedLoopAnswer
    from ..html.charts.figure import PlottedChart

By = Literal["flow", "phase", "second", "round", "run"]


class Recordings(Closing):
    """The runs of an open store, read-only; a context manager that closes it.

    Methods that take `run` mean one run by its name (BbrscopeError: there is none); without it, all
    runs. Small tables come as ``polars.DataFrame``, those with a row per event or packet as
    ``polars.LazyFrame``: call ``collect()`` when you have said what you want of it. Columns and
    units are those that ``bbrscope schema NAME`` prints. Seconds are on the run's clock: 0 is the
    first event of the first flow that counts, which is one that carried data (view ``senders``).

    Decisions are found by replaying. Methods that need them replay a run the first time, and store
    them: then the store is opened for writing for that long.

    Attributes:
        path: the store's file.

    >>> lab.names
    ['v2_x_spur']
    >>> str(lab).partition(": ")[2]
    '1 run>'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: Store | None = open_store(path, read_only=True)

    def __repr__(self) -> str:
        held = "closed" if self._store is None else plural(len(self.names), "run")
        return f"<bbrscope.Recordings {self.path}: {held}>"

    def close(self) -> None:
        """Close the file. Lazy frames that were not collected yet are of no use afterwards."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __exit__(self, *failure: object) -> None:
        """Close the file; StoreError if something failed for rows that no bbrscope put there."""
        if self._store is not None:
            opened, self._store = self._store, None
            opened.__exit__(*failure)

    @property
    def store(self) -> Store:
        """The open store, whose `con` takes DuckDB's SQL. Raises StoreError: it was closed."""
        if self._store is None:
            raise StoreError(f"{self.path} was closed", "open it again: bbrscope.open(...)")
        return self._store

    @property
    def names(self) -> list[str]:
        """Names of the runs, in the order in which they were ingested."""
        return self.store.runs()

    def runs(self) -> polars.DataFrame:
        """Return one row per run: what it is, how long, how much, and what it lacks.

        >>> lab.runs().select("run", "version", "flows", "events", "rows_lost").to_dicts()
        [{'run': 'v2_x_spur', 'version': 'v2', 'flows': 1, 'events': 5266, 'rows_lost': 0}]
        """
        return _frame(self.store.con.sql(runs_query(self.store.listed_by)))

    def flows(self, run: str | None = None) -> polars.DataFrame:
        """Return one row per flow; table ``flows``.

        >>> lab.flows().select("flow", "events").to_dicts()
        [{'flow': 1, 'events': 5266}]
        """
        return self._table("flows", run).collect()

    def events(self, run: str | None = None) -> polars.LazyFrame:
        """Return one row per call of a BBR callback, with every recorded field; table ``events``.

        >>> lab.events("v2_x_spur").select("seq", "kind", "tp_snd_cwnd").head(3).collect().rows()
        [(0, 'main', 10), (1, 'init', 10), (2, 'cwnd_event', 10)]
        """
        return self._table("events", run)

    def decisions(self, run: str | None = None) -> polars.LazyFrame:
        """Return every decision, those to change nothing too, with evidence; view ``decision_log``.

        >>> decisions = lab.decisions("v2_x_spur").filter(about="inflight_hi", change=True)
        >>> decisions.select("t_ns", "name", "function").head(1).collect().rows()
        [(13564861041, 'HI_CUT_RS_LOSS', 'bbr_handle_inflight_too_high')]
        """
        self._replay([run] if run else self.store.runs(with_events=True))
        return self._table("decision_log", run)

    def transitions(self, run: str | None = None) -> polars.DataFrame:
        """Return every phase change with the decision that made it; view ``transitions``.

        >>> changes = lab.transitions("v2_x_spur").select("from_phase", "to_phase", "name")
        >>> for change in changes.head(3).rows(): print(change)
        (None, 'STARTUP', 'INIT')
        ('STARTUP', 'DRAIN', 'DRAIN_ENTER')
        ('DRAIN', 'PROBE_BW_CRUISE', 'DRAIN_EXIT_DRAINED')
        """
        self._replay([run] if run else self.store.runs(with_events=True))
        return self._table("transitions", run).collect()

    def packets(self, run: str | None = None) -> polars.LazyFrame:
        """Return one row per captured packet, if packets were captured; table ``packets``.

        >>> lab.packets("v2_x_spur").collect().height
        0
        """
        return self._table("packets", run)

    def metrics(
        self,
        *runs: str,
        by: By = "flow",
        between: tuple[float, float] | None = None,
        steady: bool = False,
    ) -> polars.DataFrame:
        """Return throughput, loss, RTT, queue and inflight of flows; views ``metrics_by_*``.

        Columns that begin with ``pkt_`` come from packets only, the others from kernel events.
        They are of whole runs, of `between` (seconds on the run's clock), or of the `steady` state
        (not of both). Raises BbrscopeError: both are given, or a run has no steady state.

        >>> goodput, rtt = lab.metrics("v2_x_spur").select("goodput_mbps", "rtt_min_us").row(0)
        >>> round(goodput, 2), rtt
        (6.88, 20000)
        """
        import polars

        from ...analyze.compare.run_metrics import table
        from ..window_options import nanoseconds, windows_of
        from .frames import in_order_of

        ids = self._ids(runs)
        windows = windows_of(self.store, ids, nanoseconds(between), steady)
        return in_order_of(ids, polars.DataFrame(table(self.store.con, ids, by, windows)))

    def sql(self, query: str, **values: object) -> polars.DataFrame:
        """Return the result of one SELECT; ``bbrscope schema`` lists tables, views and columns.

        Args:
            query: DuckDB's dialect. It reads the store and nothing else.
            values: of its named parameters, $least in the example.

        Raises:
            BbrscopeError: it is no single SELECT, or wrong.

        >>> lab.sql("SELECT kind::VARCHAR AS kind, count(*) AS n FROM events GROUP BY ALL"
        ...         " HAVING n > $least ORDER BY n DESC", least=100).rows()
        [('main', 5139)]
        """
        return _frame(self.relation(query, values))

    def relation(
        self, query: str, values: Mapping[str, object] | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return one SELECT as a DuckDB relation, which runs when its rows are taken; see `sql`.

        Raises:
            BbrscopeError: it is no single SELECT, or wrong.
        """
        import duckdb

        from ...analyze.views.asked_runs import for_asked_runs
        from ...collect.store.select_only import select

        try:
            narrowed = for_asked_runs(self.store, query, values or {})
            return select(self.store.con, narrowed, values)
        except duckdb.Error as error:
            raise query_error(error) from error

    def replay(self, *runs: str) -> polars.DataFrame:
        """Return how the replay agrees with the kernel: one row per flow and mode; ``replays``.

        *step* predicts each event from the recorded state before it, *free-run* knows only the
        state after init and the inputs. Runs that were not replayed yet are replayed first.

        >>> lab.replay("v2_x_spur").select("flow", "mode", "events", "exact").rows()
        [(1, 'step', 5264, 5264), (1, 'free-run', 5264, 5264)]
        """
        chosen = list(runs) or self.store.runs(with_events=True)
        self._replay(chosen)
        run_ids = ", ".join(map(str, self._ids(chosen))) or "NULL"
        query = (
            "SELECT r.run, p.* EXCLUDE (run_id) FROM replays p JOIN runs r USING (run_id)"
            f" WHERE run_id IN ({run_ids}) ORDER BY run_id, flow, mode DESC"
        )
        return _frame(self.store.con.sql(query))

    def what_if(
        self,
        run: str,
        settings: Mapping[str, object] | None = None,
        version: str | None = None,
        seeds: int = 20,
    ) -> ClosedLoopAnswer:
        """Simulate a run again under other rules (closed loop): what it would have reached.

        Args:
            settings, version: the other rules, as in `replay_under`.
            seeds: simulations under each set of rules, 20 or more.

        Raises:
            BbrscopeError: no such rules, or a path that cannot be fitted from the recording.
        """
        from ...analyze.simulate.closed_loop import question_about

        question = question_about(self.store, run, _as_written(settings), version)
        return question.answer(seeds)

    def replay_under(
        self,
        run: str,
        settings: Mapping[str, object] | None = None,
        version: str | None = None,
        flow: int | None = None,
        seed: int = 0,
    ) -> list[OpenLoopAnswer]:
        """Replay the recorded inputs under other rules (open loop); an answer for each flow.

        An answer says up to where it is exact, and how far the outputs drift from there on.

        Args:
            settings: parameters of the estimator and their values, in kernel units or as "5%".
            version: rules of v1, v2 or v3, a variant's name or a file with a variant of your own,
                instead of the recorded ones.
            flow: this one; None: all that carry data.
            seed: for random draws that were not recorded.

        Raises:
            BbrscopeError: no such parameter, or the recording lacks what those rules need.

        >>> (answer,) = lab.replay_under("v2_x_spur", {"loss_thresh": "5%"})
        >>> answer.changed
        {'loss_thresh': (5, 13)}
        """
        from ...analyze.replay.open_loop import ask_run

        return ask_run(self.store, run, _as_written(settings), version, flow, seed)

    def explain(self, run: str, flow: int | None = None) -> polars.DataFrame:
        """Return what the flows decided, when and why: one row per change.

        Columns: flow, t_s (seconds on the run's clock), about, old, new, decision, why (a sentence
        with the numbers) and function (the kernel's).

        Raises:
            BbrscopeError: the run has no such flow.

        >>> story = lab.explain("v2_x_spur")
        >>> story.filter(about="inflight_hi").select("old", "new", "decision").rows()
        [(None, '36', 'HI_CUT_RS_LOSS')]
        """
        from ...analyze.story import flow_stories
        from .frames import story_frame

        self._replay([run])
        con = self.store.con
        flows = flow_stories.flows_of(con, self.store.run_id(run))
        chosen = [one for one in flows if flow in (None, one.flow)]
        if flow is not None and not chosen:
            known = ", ".join(str(one.flow) for one in flows) or "none"
            raise BbrscopeError(f"{run} has no flow {flow}", f"it has {known}")
        return story_frame([flow_stories.story_of(con, one) for one in chosen])

    def diagnose(self, *runs: str) -> list[Diagnosis]:
        """Return what is wrong with the runs' flows: findings with evidence, and every check.

        >>> (diagnosis,) = lab.diagnose("v2_x_spur")
        >>> diagnosis.exact, diagnosis.compared
        (5264, 5264)
        """
        from ...analyze.diagnosis.engine import diagnose_many

        chosen = list(runs) or self.store.runs(with_events=True)
        self._replay(chosen)
        parts = self.store.in_parts(chosen) if chosen else ()
        return [one for some in parts for one in diagnose_many(self.store.con, self._ids(some))]

    def findings(self, *runs: str) -> polars.DataFrame:
        """Return what `diagnose` found as a frame: one row per finding, the costliest first.

        >>> lab.findings("v2_x_spur").select("name", "severity").rows()
        [('outage', 'severe'), ('ack_aggregation', 'minor')]
        """
        from .frames import findings_frame

        return findings_frame(self.diagnose(*runs))

    def chart(
        self,
        name: str,
        *runs: str,
        flow: int | None = None,
        between: tuple[float, float] | None = None,
        dark: bool = False,
    ) -> altair.LayerChart | altair.VConcatChart:
        """Return a chart of `bbrscope plot` for a notebook to show.

        Charts of several runs stand one below the other.

        Args:
            name: rates, volumes, rtt, loss ...; ``bbrscope plot --list`` has them all.
            runs: one or more.
            flow: of each run; None: the first that counts, or in CDFs and boxes, every one.
            between: seconds on the run's clock.
            dark: for a dark background.

        Raises:
            BbrscopeError: no such chart, run or flow, or there is nothing to draw.

        >>> chart = lab.chart("volumes", "v2_x_spur", between=(0, 2))
        >>> chart.to_dict()["title"]["text"]
        'v2_x_spur, flow 1'
        """
        import altair

        spec = self.figure(name, runs, flow, between, dark).spec
        if "vconcat" in spec:
            return altair.VConcatChart.from_dict(spec)
        return altair.LayerChart.from_dict(spec)

    def figure(
        self,
        name: str,
        runs: Sequence[str],
        flow: int | None = None,
        between: tuple[float, float] | None = None,
        dark: bool = False,
    ) -> PlottedChart:
        """Return a chart as a Vega-Lite specification with the rows behind it; see `chart`."""
        from ..html.charts.figure import NAMES, figure

        if name not in NAMES:
            raise BbrscopeError(f"no chart called {name!r:.60}", f"there are {', '.join(NAMES)}")
        if not runs:
            raise BbrscopeError("a chart is of a run", f"name one of {', '.join(self.names)}")
        self._replay(runs)
        return figure(self.store.con, name, self._ids(runs), flow, between, dark)

    def _replay(self, runs: Sequence[str]) -> None:
        """Replay what of the runs was not replayed yet; the store is opened anew for it."""
        missing = not_replayed(self.store, runs)
        if missing:
            self.store.close()
            try:
                replay(self.path, missing)
            finally:
                self._store = open_store(self.path, read_only=True)

    def _ids(self, runs: Sequence[str]) -> list[int]:
        return [self.store.run_id(run) for run in runs or self.names]

    def _table(self, name: str, run: str | None) -> polars.LazyFrame:
        """Return a table or view, of one run or of all."""
        from .lazy_table import lazy_table

        where = "" if run is None else f" WHERE run_id = {self.store.run_id(run)}"
        return lazy_table(lambda: self.store.con, f'SELECT * FROM "{name}"{where}')


def _as_written(settings: Mapping[str, object] | None) -> list[str]:
    return [f"{name}={value}" for name, value in (settings or {}).items()]


def _frame(relation: duckdb.DuckDBPyRelation) -> polars.DataFrame:
    frame: polars.DataFrame = relation.pl()
    return frame
