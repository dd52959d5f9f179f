"""One recording from start to bundle: attach, run, watch, stop, account, write."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...probes import btf
from ...probes.program import Attach, Program
from ..errors import HostError
from ..rungs import RUNGS
from . import accounting, check, clocks, facts, filters, ladder, target, witnesses
from . import bpftrace as tracing
from .tracer import Tracer

TICK_S = 0.2
# Kept free in the output folder so that a full disk leaves room to finish the files.
RESERVE_BYTES = 2 << 20


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    output: Path
    command: tuple[str, ...] = ()
    duration_s: float | None = None
    select: filters.Filters = field(default_factory=filters.Filters)
    bbr: str | None = None
    rung: str | None = None
    interface: str | None = None
    packets: bool = True
    ring_kib: int = 16384
    queue: str | None = None
    max_bytes: int | None = None
    buffer_bytes: int = tracing.BUFFER_BYTES
    quiet: bool = False


@dataclass
class Tried:
    """A rung and what came of it."""

    rung: str
    outcome: str
    reason: str


@dataclass
class Prepared:
    """The host as found: what can be recorded and how."""

    base: btf.Btf | None
    bpftrace: tracing.Bpftrace | None
    target: target.Target | None
    steps: list[ladder.Step]
    problems: list[str]
    instance: int | None


def prepare(plan: Plan) -> Prepared:
    """Look at the host; problems that rule out bpftrace are kept as reasons for the last rung."""
    filters.condition(plan.select, "")  # refuses what names nothing, on every rung
    problems: list[str] = []
    base, tool, chosen = None, None, None
    if plan.rung != "inet_diag":
        if os.geteuid() != 0:
            problems.append("not root: BPF needs it")
        else:
            try:
                base = btf.load()
                tool = tracing.find()
                chosen = target.choose(target.candidates(base), plan.bbr)
            except target.UnclearError:
                raise
            except HostError as error:
                problems.append(f"{error.fact} ({error.way_out})" if error.way_out else error.fact)
    steps = ladder.ladder(tool, chosen, plan.rung)
    instance = target.instance(chosen.module) if chosen else None
    return Prepared(base, tool, chosen, steps, problems, instance)


def program(prepared: Prepared, attach: Attach, select: filters.Filters) -> str:
    """The text of the program for one rung."""
    assert prepared.target is not None
    assert prepared.base is not None
    host = target.program_host(prepared.target, prepared.base)
    wanted = filters.condition(select, attach.argument)
    return Program(prepared.target.version, host, attach, wanted.text, wanted.setup).text()


def check_places(rung: str, chosen: target.Target | None) -> None:
    """Refuse probes that landed in another BBR of this kernel.

    Raises:
        HostError: a callback is not among the functions that the kernel traces, or those cannot
            be seen.
    """
    if rung != "fentry" or chosen is None or not chosen.shared:
        return
    mounted = tracing.tracefs()
    if mounted is None:
        raise HostError(
            f"{', '.join(chosen.shared)} is in more than one place, and where the probes landed "
            "cannot be seen: mount -t tracefs tracefs /sys/kernel/tracing"
        )
    if names := target.misplaced(chosen, mounted):
        raise HostError(
            f"the kernel attached to another {', '.join(names)}, by name alone: unload the module"
            " of the other BBR to record this one whole"
        )


class Session:
    """Holds everything that must be stopped, whatever happens."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.folder = plan.output.with_name(plan.output.name + ".partial")
        self.tried: list[Tried] = []
        self.ended = ""
        self.tracer: Tracer | None = None
        self.packets: witnesses.Packets | None = None
        self.samplers: dict[str, witnesses.Sampler] = {}
        self.command: subprocess.Popen[bytes] | None = None
        self.program = ""
        self.attach: Attach | None = None
        self.rung = "inet_diag"
        self.notes: list[str] = []

    # --- before -----------------------------------------------------------------------------

    def check_output(self) -> None:
        """Refuse before anything is attached what would fail later."""
        if self.plan.command and shutil.which(self.plan.command[0]) is None:
            raise HostError(f"cannot start {self.plan.command[0]!r}: no such command")
        try:
            if self.plan.output.exists():
                raise HostError(f"{self.plan.output} exists", "choose another --output")
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            reserve(self.folder)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise HostError(f"cannot write {self.folder}: {error.strerror}") from error

    def climb(self, prepared: Prepared) -> None:
        """Attach the first rung that holds."""
        for step in prepared.steps:
            if not step.usable:
                self.tried.append(Tried(step.rung, "ruled out", step.reason))
                continue
            if step.rung == "inet_diag":
                self.rung = step.rung
                reason = "; ".join(prepared.problems) or step.reason
                self.say_why_lower()
                self.tried.append(Tried(step.rung, "used", reason))
                if prepared.problems:
                    self.say(f"  {reason}")
                return
            assert step.attach is not None
            assert prepared.bpftrace is not None
            attach = self.with_clock(step.attach)
            self.program = program(prepared, attach, self.plan.select)
            self.say(f"attaching: {step.rung} ({step.reason})")
            path = self.folder / "events.csv.zst"
            tracer = Tracer(prepared.bpftrace, self.program, path, self.plan.buffer_bytes)
            try:
                tracer.wait_attached(lambda: bool(self.ended))
                check_places(step.rung, prepared.target)
            except HostError as error:
                tracer.stop()
                path.unlink(missing_ok=True)
                self.tried.append(Tried(step.rung, "failed", error.fact))
                if self.ended:
                    raise
                continue
            self.tracer, self.rung, self.attach = tracer, step.rung, attach
            self.say_why_lower()
            self.tried.append(Tried(step.rung, "used", step.reason))
            return
        reasons = [f"{t.rung}: {t.outcome}, {t.reason}" for t in self.tried] + prepared.problems
        raise HostError("nothing could be attached: " + "; ".join(reasons), "bbrscope doctor")

    def say_why_lower(self) -> None:
        """Name the better rungs that this host does not have."""
        for each in self.tried:
            self.say(f"  {each.rung} {each.outcome}: {each.reason}")

    def with_clock(self, attach: Attach) -> Attach:
        """Old bpftrace's nsecs counts suspended time too; subtract what is between the clocks."""
        if attach.clock != "nsecs":
            return attach
        now = clocks.sample()
        ahead = now.boottime_ns - now.monotonic_ns
        # Within the reading's own uncertainty the clocks are one: the host was never suspended.
        if abs(ahead) <= max(now.uncertainty_ns, 20_000):
            return attach
        return Attach(**{**vars(attach), "clock": f"(nsecs - {ahead})"})

    def start_witnesses(self) -> None:
        select = self.plan.select
        self.samplers["ss.txt.zst"] = witnesses.Sampler(
            self.folder / "ss.txt.zst",
            witnesses.SS_S,
            lambda: witnesses.ss_lines(select.prefix, select.ss(), select.pids),
        )
        place = self.place()
        queue = witnesses.Place(self.plan.queue) if self.plan.queue else place
        if queue is not None:
            sampler = witnesses.Sampler(
                self.folder / "queue.csv.zst",
                witnesses.QUEUE_S,
                lambda: witnesses.queue_rows(queue),
            )
            sampler.output.write(f"{witnesses.QUEUE_HEADER}\n".encode())
            self.samplers["queue.csv.zst"] = sampler
        if self.plan.packets and place is not None:
            self.start_packets(place)
        for sampler in self.samplers.values():
            sampler.start()

    def place(self) -> witnesses.Place | None:
        """The device the traffic leaves by: as told, else that of the route."""
        select = self.plan.select
        if self.plan.interface:
            return witnesses.Place(self.plan.interface)
        peer = next(iter(select.addresses), None) or address_in(self.plan.command)
        device = witnesses.route_device(peer, select.prefix)
        if device is None:
            self.notes.append("no route found for packets and queue: give --interface")
            return None
        return witnesses.Place(f"{select.netns}:{device}" if select.netns else device)

    def start_packets(self, place: witnesses.Place) -> None:
        if os.geteuid() != 0 or shutil.which("tcpdump") is None:
            self.notes.append(
                "no packets: tcpdump is missing" if os.geteuid() == 0 else "no packets: not root"
            )
            return
        expression = self.plan.select.pcap()
        path = self.folder / "packets.pcap.zst"
        self.packets = witnesses.Packets(place, path, self.plan.ring_kib, expression)
        if not self.packets.wait_listening():
            self.notes.append(f"no packets: tcpdump said {self.packets.complaint()!r}")
            self.packets.stop()
            self.packets = None
            path.unlink(missing_ok=True)

    # --- during -----------------------------------------------------------------------------

    def start_command(self) -> None:
        if not self.plan.command:
            return
        try:
            self.command = subprocess.Popen(list(self.plan.command))
        except OSError as error:
            raise HostError(f"cannot start {self.plan.command[0]!r}: {error.strerror}") from error

    def watch(self) -> None:
        """Until something ends the recording; `ended` says what."""
        start = time.monotonic()
        progress = Progress(sys.stderr, self.plan.quiet)
        while not self.ended:
            self.ended = self.why_end(time.monotonic() - start)
            if not self.ended:
                time.sleep(TICK_S)
            progress.show(self, time.monotonic() - start)
        progress.done()

    def why_end(self, elapsed_s: float) -> str:
        if self.tracer and (code := self.tracer.process.poll()) is not None:
            how = f"status {code}" if code >= 0 else f"signal {-code}"
            return f"bpftrace ended by itself ({how}) {self.tracer.complaint()}".strip()
        if self.command and self.command.poll() is not None:
            return f"the command ended (status {self.command.returncode})"
        if self.plan.duration_s is not None and elapsed_s >= self.plan.duration_s:
            return "duration"
        if self.plan.max_bytes is not None and self.written() >= self.plan.max_bytes:
            return f"size cap of {self.plan.max_bytes} bytes"
        if error := self.write_error():
            return f"cannot write: {error.strerror}"
        return ""

    def written(self) -> int:
        outputs = [sampler.output for sampler in self.samplers.values()]
        outputs += [self.tracer.output] if self.tracer else []
        outputs += [self.packets.output] if self.packets else []
        return sum(output.written for output in outputs)

    def write_error(self) -> OSError | None:
        errors = [sampler.error for sampler in self.samplers.values()]
        errors += [self.tracer.events.error] if self.tracer else []
        errors += [self.packets.pump.error] if self.packets else []
        return next((error for error in errors if error), None)

    # --- after ------------------------------------------------------------------------------

    def stop_command(self) -> None:
        if self.command is None or self.command.poll() is not None:
            return
        self.command.terminate()
        try:
            self.command.wait(10)
        except subprocess.TimeoutExpired:
            self.command.kill()
            self.command.wait()

    def stop(self) -> dict[str, Any]:
        """Stop everything; nothing stays attached. Safe to call in any state."""
        (self.folder / "reserve").unlink(missing_ok=True)
        self.stop_command()
        told: dict[str, Any] = self.tracer.stop() if self.tracer else {}
        with contextlib.suppress(OSError):
            told["packets"] = self.packets.stop() if self.packets else None
        for sampler in self.samplers.values():
            if sampler.ident is not None:
                with contextlib.suppress(OSError):
                    sampler.stop()
        return told


def run(plan: Plan, say: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """Record and return the bundle's path and manifest.

    Raises:
        HostError: nothing could be recorded; no bundle is left.
    """
    session = Session(plan, say)
    with signals(session):
        session.check_output()
        told: dict[str, Any] = {}
        try:
            prepared = prepare(plan)
            session.climb(prepared)
            session.start_witnesses()
            begin = clocks.sample()
            before = facts.sysctls(plan.select.prefix)
            params = facts.module_parameters()
            say(f"recording with {session.rung}: {RUNGS[session.rung].answers}")
            session.start_command()
            session.watch()
        except BaseException as error:
            session.stop()
            shutil.rmtree(session.folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise HostError(f"cannot record: {error}", "bbrscope doctor") from error
            raise
        told = session.stop()
        end = clocks.sample()
        manifest = describe(session, prepared, told)
        manifest["clocks"] = clocks.describe(begin, end)
        manifest["sysctls"] = before
        manifest["module_params"] = params
        after = {**facts.sysctls(plan.select.prefix), **facts.module_parameters()}
        told_before = {**before, **params}
        manifest["settings_changed"] = [
            f"{name}: {value} -> {after.get(name)}"
            for name, value in told_before.items()
            if after.get(name) != value
        ]
        try:
            return finish(session, manifest), manifest
        except OSError as error:
            raise HostError(
                f"cannot finish the bundle: {error.strerror}",
                f"what was recorded is in {session.folder}",
            ) from error


def describe(session: Session, prepared: Prepared, told: dict[str, Any]) -> dict[str, Any]:
    """The manifest but for clocks and settings."""
    plan, events = session.plan, session.tracer.events if session.tracer else None
    host = facts.host(plan.select.prefix)
    chosen, rung = prepared.target, RUNGS[session.rung]
    manifest: dict[str, Any] = {
        "format": "bbrscope-bundle",
        "version": 1,
        "name": plan.output.name,
        "bbr": chosen.version.name if chosen else None,
        "scenario": {"id": "live", "description": " ".join(plan.command) or "recorded live"},
        "setup": {"filters": plan.select.describe(), "command": list(plan.command)},
        "kernel": host["kernel"],
        "constants": facts.constants(prepared.base),
        "probe": session.rung,
        "answers": {"can": rung.can, "cannot": rung.cannot},
        "decoded_as": chosen.reason if chosen else None,
        "ladder": [vars(each) for each in session.tried],
        "bpftrace": prepared.bpftrace.version if prepared.bpftrace else None,
        "host": host,
        "ended": session.ended,
        "packets": told.get("packets"),
        "notes": session.notes,
        "samples": session.samplers["ss.txt.zst"].samples,
    }
    if chosen and target.instance(chosen.module) != prepared.instance:
        session.notes.append(f"module {chosen.module} was unloaded during the recording")
    if events is not None:
        manifest["events"] = dict(events.rows)
        manifest["accounting"] = accounting.account(events, told)
        manifest["events_lost"] = manifest["accounting"]["lost"]
        manifest["said"] = events.talk[:50]
    else:
        manifest["events"] = {}
        manifest["events_lost"] = 0
    return manifest


def finish(session: Session, manifest: dict[str, Any]) -> Path:
    """Check the rows, write the manifest, and give the bundle its name."""
    folder, output = session.folder, session.plan.output
    path = folder / "events.csv.zst"
    if session.tracer is not None:
        manifest["completeness"] = check.check(path).as_dict()
    if session.program:
        (folder / "probe.bt").write_text(session.program)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=str) + "\n")
    try:
        os.rename(folder, output)
    except OSError as error:
        raise HostError(
            f"cannot name the bundle {output}: {error.strerror}", f"it is {folder}"
        ) from error
    hand_over(output)
    return output


def hand_over(folder: Path) -> None:
    """Under sudo, give the bundle to the user who asked for it."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1"))
        for path in (folder, *folder.iterdir()):
            with contextlib.suppress(OSError):
                os.chown(path, *owner)


def address_in(command: tuple[str, ...]) -> str | None:
    """The first argument that names a reachable host, as an address."""
    import ipaddress
    import socket
    from urllib.parse import urlsplit

    for word in command[1:]:
        try:
            host = urlsplit(word).hostname if "://" in word else word
        except ValueError:
            continue
        # A shell's script is no host, and longer than a name may be (RFC 1035, 2.3.4).
        if not host or host.startswith("-") or len(host) > 255 or " " in host:
            continue
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            if host != "localhost" and "." not in host:
                continue
        with contextlib.suppress(OSError, UnicodeError):
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return None


def reserve(folder: Path) -> None:
    """Claim the space that finishing needs."""
    with (folder / "reserve").open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise


@contextlib.contextmanager
def signals(session: Session) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the recording in order instead of the process."""

    def end(number: int, _frame: object) -> None:
        session.ended = session.ended or signal.Signals(number).name

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """One line on a terminal: elapsed, events per second, flows, lost, size."""

    def __init__(self, stream: Any, quiet: bool) -> None:
        self.stream = stream
        self.on = stream.isatty() and not quiet
        self.last = (0.0, 0)

    def show(self, session: Session, elapsed: float) -> None:
        if not self.on or elapsed - self.last[0] < 1.0:
            return
        rows = session.tracer.events.rows if session.tracer else {}
        events = sum(n for tag, n in rows.items() if tag in ("M", "M0", "T", "T0"))
        rate = (events - self.last[1]) / max(elapsed - self.last[0], 1e-9)
        self.last = (elapsed, events)
        flows = rows.get("I", 0) + rows.get("N", 0)
        lost = session.tracer.events.lost if session.tracer else 0
        size = session.written() / 1e6
        self.stream.write(
            f"\r{elapsed:7.0f} s  {rate:8.0f} events/s  {flows} flows  {lost} lost  {size:.1f} MB "
        )
        self.stream.flush()

    def done(self) -> None:
        if self.on:
            self.stream.write("\n")
