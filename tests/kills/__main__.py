"""Kill commands at random moments, and see what is left: exit status 1 if anything is amiss.

A command is run once to its end, which takes some seconds and gives the results; then again and
again from the same beginning, each killed with SIGKILL after a time drawn from that duration, alone
or with its children. After each: every result is there whole, or as it was before, or not at all;
the same command then completes the work; and no file is left that should not be there. What is left
is compared byte by byte with what was left before: work is completed once from each such state.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bbrscope.collect.lake.lake_place import MARK, open_place
from bbrscope.collect.lake.lake_upkeep import LEFT_OVER_S, check

from . import collecting
from .cases import CASES, Case, Content, make, prepare
from .victim import Victims

# Parts of the names of files that are there only while a command runs.
PASSING = ("scratch", "partial", "replaced", ".tmp", ".wal", "spill", ".lock")


class Campaign:
    """Kills commands in folders below one, and notes what is amiss."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.recordings = folder / "recordings"
        self.failures: list[str] = []
        self.killed = 0
        prepare(self.recordings)

    def case(self, case: Case, times: int, victims: Victims) -> str:
        """Kill a command so many times; return in a line what came of it."""
        found = self.folder / "found"
        make(case, self.recordings, found)
        before = case.content(found)
        final, seconds = self._uninterrupted(case, found, victims)
        random, tries, killed, whole = Random(f"{self.seed} {case.name}"), 0, 0, 0
        seen = {state(found): False}
        while killed < times and tries < 2 * times:
            tries += 1
            place = self.folder / "place"
            shutil.copytree(found, place, symlinks=True)
            after, group = random.uniform(0, seconds), random.random() < 0.5
            shown = f"{case.name} {tries}, killed after {after:.3f} s of {seconds:.3f}"
            status, took = victims.run(list(case.words), place, after, group)
            killed += status == -9
            # The machine may have become faster.
            seconds = seconds if status == -9 else min(seconds, took)
            left = state(place)
            try:
                if left not in seen:
                    seen[left] = self._look(case, place, (before, final), victims)
                whole += seen[left]
            except Exception as error:
                self.failures.append(f"{shown}: {type(error).__name__}: {error}")
            shutil.rmtree(place)
        shutil.rmtree(found)
        self.killed += killed
        return (
            f"{case.name}: {seconds:.2f} s; {killed} killed, {tries - killed} had ended;"
            f" {len(seen)} states were left; after {whole} of {tries} all results were there"
        )

    def _uninterrupted(self, case: Case, found: Path, victims: Victims) -> tuple[Content, float]:
        """Return the results of a command that nobody kills, and how long it takes [s]."""
        shortest = math.inf
        for _ in range(2):
            place = self.folder / "place"
            shutil.copytree(found, place, symlinks=True)
            status, seconds = victims.run(list(case.words), place, None, False)
            said = (place / "said").read_text()
            assert status in (0, int(case.words[0] == "replay")), said
            content = case.content(place)
            assert content
            assert not list(left_over(place)), list(left_over(place))
            shutil.rmtree(place)
            shortest = min(shortest, seconds)
        return content, shortest

    def _look(
        self, case: Case, place: Path, ends: tuple[Content, Content], victims: Victims
    ) -> bool:
        """See that nothing is lost or half there, now and when the work is completed."""
        (before, final), after = ends, case.content(place)
        for key in before.keys() | final.keys() | after.keys():
            allowed = (before.get(key), final.get(key))
            assert after.get(key) in allowed, f"{key} is neither as before nor whole: {after}"
        status, _ = victims.run(list(case.words), place, None, False)
        done = case.once and after == final
        allowed = (1,) if done else (0, int(case.words[0] == "replay"))
        assert status in allowed, (place / "said").read_text()
        if case.tidy:
            _let_an_hour_pass(place)
            status, _ = victims.run(list(case.tidy), place, None, False)
            assert status == 0, (place / "said").read_text()
        assert case.content(place) == final, "the same command did not complete the work"
        assert not list(left_over(place)), f"left over: {list(left_over(place))}"
        return after == final


def state(place: Path) -> frozenset[tuple[str, str]]:
    """Every file and folder below one with its content, but for what the command printed.

    What is random in the names of scratch folders counts for nothing.
    """
    found = set()
    for path in place.rglob("*"):
        name = re.sub(r"(\.bbrscope-scratch-)\w+", r"\1", str(path.relative_to(place)))
        if path.is_symlink() or path.is_dir():
            found.add((name, str(path.readlink()) if path.is_symlink() else "folder"))
        elif name != "said":
            found.add((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return frozenset(found)


def _let_an_hour_pass(place: Path) -> None:
    before = time.time() - LEFT_OVER_S - 1
    for path in (place / "lake").rglob("*"):
        os.utime(path, (before, before))


def left_over(place: Path) -> Iterator[str]:
    """Yield files and folders that no command should leave."""
    if (place / "lake" / MARK).is_file():
        yield from (fault.what for fault in check(open_place(place / "lake"), read=True))
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if name.startswith("tmp/") or any(part in name for part in PASSING):
            yield name


def main() -> None:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=100, help="kills of each command [100]")
    parser.add_argument("--seed", type=int, default=1, help="other moments [1]")
    parser.add_argument("--only", help="commands whose description has this")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bbrscope-kills-") as folder:
        campaign, victims = Campaign(Path(folder), options.seed), Victims()
        for case in CASES:
            if (options.only or "") in case.name:
                print(campaign.case(case, options.times, victims), flush=True)
                while campaign.failures:
                    print("---", campaign.failures.pop(0), flush=True)
                    failed = True
        if (options.only or "") in collecting.NAME:
            line, failures = collecting.campaign(Path(folder), options.seed, options.times, victims)
            print("\n--- ".join([line, *failures]), flush=True)
            if failures:
                failed = True
        victims.close()
    print(f"{campaign.killed} kills, {time.monotonic() - began:.0f} s")
    sys.exit("failed" in locals())


if __name__ == "__main__":
    main()
