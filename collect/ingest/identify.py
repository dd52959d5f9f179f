"""What a bundle or a file would be called as a run, and its digest, without loading it."""

from __future__ import annotations

from pathlib import Path

from ..bundle.bundle import open_bundle
from ..bundle.recognise import recognise
from .single_file import digest_of, run_name


def name_and_digest(path: Path, kind: str | None = None, salvage: bool = False) -> tuple[str, str]:
    """Return the name of the run that `path` would become, and the digest of its files.

    Raises:
        BundleError: there is no such file, or it is too damaged to tell.
    """
    if recognise(path, kind) == "bundle":
        with open_bundle(path, salvage) as bundle:
            return bundle.manifest.name, bundle.digest
    return run_name(path), digest_of(path)
