"""The entry point of the program ``bbrscope``, which Ctrl-C ends quietly from its first moment."""

from __future__ import annotations

import os
import sys

# The oldest Python that can read the other modules: this one and bbrscope itself any 3.7 can.
OLDEST = (3, 11)
TOO_OLD = """\
bbrscope: this is Python {}, and bbrscope needs {} or newer
  install a newer one beside it (pyenv, uv, conda), or record without Python: on a host that has
  bbrscope, "bbrscope collect --print-script > collect.sh" writes a shell script; here,
  "sh collect.sh -o RUN -- COMMAND" makes a bundle with it, which that host can ingest
"""


def main() -> None:
    """Run the command line; where this Python is too old, exit 1 and say what to do.

    While modules are imported, Ctrl-C ends the process as it ends any other program: an exception
    in the middle of an import would be shown with a traceback.
    """
    if sys.version_info[:2] < OLDEST:
        found, needed = (".".join(map(str, one)) for one in (sys.version_info[:3], OLDEST))
        sys.stderr.write(TOO_OLD.format(found, needed))
        sys.exit(1)
    _open_what_is_closed()
    try:
        import signal

        usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
        if "collect" in sys.argv:
            from ..collect.flight.early_signal import hold

            hold(sys.argv)
    except KeyboardInterrupt:
        os._exit(130)
    from .cli import main as run

    signal.signal(signal.SIGINT, usual)
    run()


def _open_what_is_closed() -> None:
    """Put the null device in the place of a standard stream that was closed.

    Otherwise the next file to be opened, a store perhaps, gets its number, and then what child
    processes print. In this order each gets its own.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)
