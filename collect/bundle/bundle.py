"""Run bundles: one recording as a folder, or as a ``.tar.zst`` of one. BUNDLE.md has the format."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...probes.base.errors import BundleError
from ...probes.base.no_file import no_file
from ...probes.base.plurals import plural
from .archive import unpacked
from .manifest_values import MAX_NAME, ManifestChecker
from .numbers import load_json
from .plain_files import RAW, in_form

FORMAT = "bbrscope-bundle"
VERSION = 1

MANIFEST = "manifest.json"
EVENTS = "events.csv.zst"
QUEUE = "queue.csv.zst"
SS = "ss.txt.zst"
PACKETS = "packets.pcap.zst"
# What else the capture may be called in bundles made by hand.
PACKET_FILES = (
    PACKETS,
    *(f"packets.{kind}{end}" for kind in ("pcap", "pcapng") for end in ("", ".gz", ".zst")),
)
ATTACHMENT = re.compile(r"iperf[0-9]+\.json")

MAX_MANIFEST = 4 << 20
MAX_ATTACHMENT = 16 << 20
MAX_ATTACHMENTS = 100
UNFINISHED = "unfinished"
# What a recording is called while it is under way.
PARTIAL = ".partial"

COMPLETE = (
    "a bundle is a folder (or a .tar.zst of one) with manifest.json and events.csv.zst, or"
    " ss.txt.zst in its place"
)


@dataclass(frozen=True)
class Clock:
    """One joint reading of CLOCK_REALTIME, _MONOTONIC and _BOOTTIME, in ns; `point` says when."""

    point: str
    realtime_ns: int
    monotonic_ns: int
    boottime_ns: int


@dataclass(frozen=True)
class Manifest:
    """A checked manifest; `raw` is the whole JSON object.

    `hz` is None if the collector could not tell, `rows` counts rows by tag (None: it did not say),
    `lost` is its own count of lost rows, `clocks` is empty when they were not sampled.
    """

    name: str
    hz: int | None
    rows: dict[str, int] | None
    lost: int
    clocks: tuple[Clock, ...]
    raw: dict[str, Any]

    @property
    def is_unfinished(self) -> bool:
        """Whether the recording is under way, or its recorder was killed."""
        return self.raw.get(UNFINISHED) is True

    def text(self, key: str) -> str | None:
        """Return a value of the manifest that should be text, or None."""
        value = self.raw.get(key)
        return value if isinstance(value, str) else None

    def group(self, key: str) -> dict[str, Any]:
        """Return a group of settings; empty when the manifest has none."""
        value = self.raw.get(key)
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk: what the user called it, its folder, manifest and digest."""

    shown: str
    folder: Path
    manifest: Manifest
    digest: str

    @property
    def events(self) -> Path:
        """The event stream."""
        return self.folder / EVENTS

    def optional(self, name: str) -> Path | None:
        """Return the path of a file that a bundle may lack, or None."""
        path = self.folder / name
        return path if path.exists() else None

    def packets(self) -> Path | None:
        """Return the packet capture, if there is one."""
        paths = (self.optional(name) for name in PACKET_FILES)
        return next((path for path in paths if path is not None), None)

    def attachments(self) -> list[Path]:
        """Return the small files that are kept as they are, by name."""
        files = (path for path in self.folder.iterdir() if ATTACHMENT.fullmatch(path.name))
        return sorted(path for path in files if path.stat().st_size <= MAX_ATTACHMENT)


@contextmanager
def open_bundle(path: Path, salvage: bool = False) -> Iterator[Bundle]:
    """Open the bundle at `path`, a folder or a ``.tar.zst``; unpacked files vanish on exit.

    With `salvage` a folder of events without a manifest will do: what a killed recorder left.

    Raises:
        BundleError: missing, empty, foreign, of another version, damaged or unsafe to unpack.
    """
    if path.is_dir():
        with ExitStack() as stack:
            with _readable(str(path)):
                folder = stack.enter_context(in_form(path, wanted, salvage))
                bundle = _read(folder, str(path), salvage)
            yield bundle
    elif not path.exists():
        raise BundleError(f"there is no bundle at {path}", COMPLETE)
    elif why := no_file(path):
        raise BundleError(why, COMPLETE)
    elif path.stat().st_size == 0:
        raise BundleError(f"{path} is empty", COMPLETE)
    else:
        with unpacked(path, wanted) as folder:
            with _readable(str(path)):
                bundle = _read(folder, str(path), salvage)
            yield bundle


def wanted(name: str) -> bool:
    """Tell whether a file of this name belongs to a bundle."""
    return name in (MANIFEST, EVENTS, QUEUE, SS, *PACKET_FILES) or bool(ATTACHMENT.fullmatch(name))


@contextmanager
def _readable(shown: str) -> Iterator[None]:
    """Turn what the system says of files into a BundleError."""
    try:
        yield
    except OSError as error:
        raise BundleError(
            f"cannot read {shown}: {error.strerror} ({error.filename})",
            "check its permissions and the disk it is on",
        ) from error


def _read(folder: Path, shown: str, salvage: bool) -> Bundle:
    files = _files(folder, shown)
    if salvage and not (folder / MANIFEST).exists() and (folder / EVENTS).exists():
        return Bundle(shown, folder, _no_manifest(Path(shown)), _digest(files))
    killed = "; of a killed recording --salvage keeps what there is"
    begun = any((folder / name).exists() for name in (EVENTS, RAW))
    way = COMPLETE + (killed if begun else "")
    if not (folder / MANIFEST).exists():
        raise BundleError(f"{shown} has no {MANIFEST}: it is not a run bundle", way)
    manifest = read_manifest(folder / MANIFEST, f"{shown}/{MANIFEST}")
    # Rung inet_diag has samples only; a run of the lab need not have a BBR flow.
    recorded = any((folder / name).exists() for name in (EVENTS, SS))
    if not recorded and "lab" not in manifest.raw:
        raise BundleError(f"{shown} has neither {EVENTS} nor {SS}: it is not a run bundle", way)
    return Bundle(shown, folder, manifest, _digest(files))


def _no_manifest(path: Path) -> Manifest:
    """Return what is known of a recording whose manifest was never written: a name."""
    plain = path.absolute().name.removesuffix(".tar.zst").removesuffix(PARTIAL)
    name = re.sub(r"[^\w.+@=-]", "_", plain).lstrip("+@=-")[:MAX_NAME] or "salvaged"
    raw = {"name": name, "constants": {}, UNFINISHED: True, "manifest": None}
    return Manifest(name, hz=None, rows=None, lost=0, clocks=(), raw=raw)


def _files(folder: Path, shown: str) -> list[Path]:
    """Return the bundle's own files by name.

    Raises:
        BundleError: one is a link, a pipe or a device: it could lead to any file of the reader's,
            or have no end; or there are too many to keep.
    """
    files = sorted(path for path in folder.iterdir() if wanted(path.name))
    for path in files:
        _require_regular(path, f"{shown}/{path.name}")
    attached = [path for path in files if ATTACHMENT.fullmatch(path.name)]
    if len(attached) > MAX_ATTACHMENTS:
        raise BundleError(
            f"{shown} has {plural(len(attached), 'file')} iperfN.json, more than {MAX_ATTACHMENTS}",
            "split it into several bundles",
        )
    return files


def _require_regular(path: Path, shown: str) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise BundleError(f"cannot read {shown}: {error.strerror}", COMPLETE) from error
    if not stat.S_ISREG(mode):
        raise BundleError(
            f"{shown} is not a regular file", "put a copy of what it stands for in its place"
        )


def _digest(files: list[Path]) -> str:
    """Return sha256 over the names and the contents of the bundle's files."""
    digest = hashlib.sha256()
    for path in files:
        with open(path, "rb") as content:
            inner = hashlib.file_digest(content, "sha256").hexdigest()
        digest.update(f"{path.name}\0{inner}\n".encode())
    return digest.hexdigest()


def read_manifest(path: Path, shown: str) -> Manifest:
    """Read and check a manifest.

    Raises:
        BundleError: not a regular file, not JSON, not a bundle's, of another version, or a value is
            impossible.
    """
    _require_regular(path, shown)
    if path.stat().st_size > MAX_MANIFEST:
        raise BundleError(f"{shown} is larger than {MAX_MANIFEST >> 20} MiB", COMPLETE)
    try:
        text = path.read_text(encoding="utf-8")
        raw = load_json(text)
        # JSON can spell halves of characters that no file and no store can hold.
        json.dumps(raw, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        way = "record again or restore it"
        raise BundleError(f"{shown} is not JSON that can be used: {error}", way) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise BundleError(f'{shown} is not of format "{FORMAT}" (found {found!r:.60})', COMPLETE)
    if raw.get("version") != VERSION:
        raise BundleError(
            f"{shown} has format version {raw.get('version')!r}; this bbrscope reads {VERSION}",
            "use the bbrscope that wrote it, or a newer one",
        )
    check = ManifestChecker(shown, text, raw)
    check.settings()
    check.counts()
    clocks = tuple(Clock(*reading) for reading in check.clocks())
    return Manifest(
        name=check.name(),
        hz=check.hz(),
        rows=check.rows(),
        lost=check.lost(),
        # One reading alone places nothing.
        clocks=clocks if len(clocks) > 1 else (),
        raw=raw,
    )
