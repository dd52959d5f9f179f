"""The ``bbrscope`` command: a lazy click group, and the one place that prints errors."""

from __future__ import annotations

import errno
import importlib
import os
import sys

import click

from ..collect.store.ending_queries import ctrl_c_ends_queries
from ..probes.base.errors import BbrscopeError
from .text.print_table import printable
from .text.screen import say

# Command name -> what it does in one line. Each lives in commands/<name>.py as `command`, and is
# imported only when it is used: `bbrscope sql` must not pay for numba or altair.
COMMANDS = {
    "demo": "Do the whole job on a shipped recording and show what to type next.",
    "ingest": "Load run bundles into the store.",
    "lake": "Keep thousands of runs as Parquet, in a folder or a bucket.",
    "fleet": "Say what costs a lake's flows most, what changed, which are worst.",
    "runs": "List the runs in the store, or remove one.",
    "replay": "Replay runs through the estimator and compare every field with the kernel.",
    "simulate": "Run BBR in a closed loop over a path of your own.",
    "what-if": "Say what a run would have reached under other rules (closed loop).",
    "diagnose": "Say what is wrong with a run's flows, what shows it, and what to try.",
    "explain": "Tell what a flow decided, when and why.",
    "metrics": "Print throughput, loss, RTT, queue and fairness of flows.",
    "study": "Compare what a scenario's runs measured with what its source claims.",
    "model": "Predict with papers' models, and compare with what runs measured.",
    "diff": "Say what got better or worse between two groups of runs.",
    "sql": "Query the store, read-only.",
    "export": "Write runs in the formats of other tools: Wireshark, DuckDB ...",
    "schema": "Print the store's tables, views, columns and units.",
    "report": "Write one self-contained HTML report, of a run or comparing several.",
    "plot": "Draw one chart as a figure, with the data behind it.",
    "collect": "Record every BBR decision input on this host into a bundle.",
    "top": "Show this host's BBR flows as they are now.",
    "exporter": "Serve what this host's BBR flows do as OpenMetrics.",
    "lab": "Repeat the experiments of the papers on real kernels.",
    "doctor": "Say what this host can record, and what to do about the rest.",
}


class LazyGroup(click.Group):
    """Lists commands from `COMMANDS` without importing them."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what it says of wrong usage may quote text that a terminal would obey."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            clean = "\n".join(map(printable, error.message.split("\n")))
            vars(error).update(message=clean)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by its name; None: there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".commands.{cmd_name.replace('-', '_')}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from `COMMANDS`, so that help imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bbrscope")
def cli() -> None:
    """Look inside Linux BBR: replay a recording bit for bit, explain it, report it.

    \b
    Start here:     bbrscope demo
    Your own run:   bbrscope ingest BUNDLE && bbrscope explain RUN
    """


# What the host refuses wherever a file is touched: this is nobody's mistake.
REFUSED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ENAMETOOLONG,
)


def main(args: list[str] | None = None) -> object:
    """Run the command line; exit 0, 1 (the job failed) or 2 (wrong usage)."""
    try:
        with ctrl_c_ends_queries():
            return cli.main(args=args, prog_name="bbrscope")
    except Exception as error:
        if _is_interrupt(error):
            say("Aborted!", err=True)
            sys.exit(1)
        shown = error if isinstance(error, BbrscopeError) else _not_our_mistake(error)
        if shown is None:
            # A mistake of bbrscope's own: the user gets the fact, whoever mends it the traceback.
            if os.environ.get("BBRSCOPE_TRACEBACK"):
                raise
            shown = BbrscopeError(
                f"internal error: {type(error).__name__}: {error}",
                "run it again with BBRSCOPE_TRACEBACK=1 and report what it prints",
            )
        say(f"bbrscope: {shown.fact}", err=True)
        if shown.way_out:
            say(f"  {shown.way_out}", err=True)
        sys.exit(1)


def _is_interrupt(error: Exception) -> bool:
    """Whether it is Ctrl-C: in a query, for which DuckDB has an exception of its own, or none; or
    while a class was made, where Python makes another exception of it."""
    if isinstance(error.__cause__, KeyboardInterrupt) and not isinstance(error, BbrscopeError):
        return True
    return type(error).__name__ == "InterruptException" or str(error) == "Query interrupted"


def _not_our_mistake(error: Exception) -> BbrscopeError | None:
    """Tell what the host or a store's file made impossible, wherever that was found out."""
    if isinstance(error, OSError) and error.errno in REFUSED:
        return BbrscopeError(f"cannot use {error.filename or 'the output'}: {error.strerror}")
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("bbrscope"):
        return BbrscopeError(
            f"this command needs the Python package {error.name}, which this host does not have",
            "plain recording does without (collect, doctor): install bbrscope whole for the rest,"
            " or ingest the recording elsewhere",
        )
    from ..collect.store.file_errors import explained, is_of_file

    return explained("the store", error) if is_of_file(error) else None
