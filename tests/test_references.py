"""What pages, comments and messages refer to is there: files, folders and headings."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("probes", "collect", "analyze", "reports", "tests", "fixtures")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
PATH = re.compile(rf"(?<![\w/.<*-])((?:{'|'.join(ROOMS)})/[\w./{{}}*<>-]*\w)")
# A file that a recipe has its reader write.
WRITTEN = {"analyze/diagnosis/rules/rtt_spike.toml"}


def texts(*endings: str) -> dict[Path, str]:
    """Every file of the rooms, and README, that has one of these endings."""
    files = [ROOT / "README.md", *(file for room in ROOMS for file in (ROOT / room).rglob("*.*"))]
    return {file: file.read_text() for file in files if file.name.endswith(endings)}


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_links_of_pages_lead_somewhere() -> None:
    broken, links = [], 0
    for page, text in texts(".md").items():
        for path, anchor in LINK.findall(text):
            links += 1
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in headings(target)):
                broken.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
    assert broken == []
    assert links > 30


def test_paths_that_are_named_are_there() -> None:
    named = {
        name: file.relative_to(ROOT)
        for file, text in texts(".md", ".py", ".toml", ".sql", ".sh", ".bt", ".j2").items()
        for name in PATH.findall(text)
        if not set(name) & set("{}*<>")
    }
    places = {name: file for name, file in named.items() if not (ROOT / name).exists()}
    assert {name for name in places if not (ROOT / f"{name}.py").exists()} - WRITTEN == set()
    assert len(named) > 100
