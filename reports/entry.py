"""The entry point of the program ``bbrscope``, which Ctrl-C ends quietly from its first moment."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line.

    While modules are imported, Ctrl-C ends the process as it ends any other program: an exception
    in the middle of an import would be shown with a traceback.
    """
    try:
        import signal

        usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        os._exit(130)
    from .cli import main as run

    signal.signal(signal.SIGINT, usual)
    run()
