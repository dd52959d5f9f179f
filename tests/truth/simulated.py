"""Points of the lab, simulated, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose_many
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import scenario
from bbrscope.collect.lab.scenario import Scenario
from bbrscope.collect.store.store import Store
from bbrscope.reports.lab.lab_simulated import _simulate


def first_point(of: Scenario, folder: Path) -> Path:
    """Simulate a scenario's first point in a folder; return the bundle.

    Raises:
        ScenarioError: the lab refuses it.
    """
    bundle, _ = _simulate(next(scenario.points(of)), folder, False)
    return bundle


def of_texts(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """Simulate the first point of each scenario, given by its name; return the bundles.

    Raises:
        ScenarioError: the lab refuses one.
    """
    bundles = []
    for name, text in texts.items():
        file = folder / f"{name}.toml"
        file.write_text(text)
        bundles.append(first_point(scenario.load(str(file)), folder))
    return bundles


def by_name(bundles: Sequence[Path], folder: Path) -> dict[str, Diagnosis]:
    """What is found in each of these, by its scenario's name."""
    return {b.name.partition("+")[0]: found for b, found in diagnosed(bundles, folder)}


def loaded(store: Store, bundles: Sequence[Path]) -> list[int]:
    """Load and replay bundles; return the run_id of each."""
    for bundle in bundles:
        ingest(store, bundle)
    ids = [store.run_id(bundle.name) for bundle in bundles]
    for flows in session.replay_runs(store.con, ids):
        results.keep(store, flows)
    return ids


def diagnosed(bundles: Sequence[Path], folder: Path) -> Iterator[tuple[Path, Diagnosis]]:
    """Load and replay bundles in a store of the folder; yield each with what is found in it."""
    with open_store(folder / "s.duckdb") as store:
        ids = loaded(store, bundles)
        yield from zip(bundles, diagnose_many(store.con, ids), strict=True)
