"""What is recorded beside the events: packets, the queue, and what `ss` says."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any

from ....probes.base.errors import HostError
from ...bundle.bundle import PACKETS, QUEUE, SS
from .. import cgroups, process_sockets
from ..filters import namespace
from ..output.outputs import Outputs
from ..plan import RecordingPlan
from . import samplers
from .packet_capture import PacketCapture
from .place import Place, address_in, route_device
from .samplers import Sampler


class SideCaptures:
    """Starts and stops the side captures; `notes` says what could not be had, and why."""

    def __init__(self, plan: RecordingPlan, outputs: Outputs) -> None:
        self.plan = plan
        self.outputs = outputs
        self.notes: list[str] = []
        self.packets: PacketCapture | None = None
        self.samplers: dict[str, Sampler] = {}
        self._cgroups = [cgroups.hold(path) for path in plan.select.cgroups]
        # A place that is none is refused before anything is attached.
        self._interface = None if plan.interface is None else Place(plan.interface)
        self._queue = None if plan.queue is None else Place(plan.queue)

    def start(self) -> None:
        """Start what this host has the tools for.

        Raises:
            HostError: the queue that the user named cannot be looked at.
        """
        self._add(SS, samplers.SS_S, self._take_ss)
        self._note_other_networks()
        place = self._interface or self._place_of_route()
        if queue := self._queue or place:
            self._start_queue(queue)
        if self.plan.packets and place is not None:
            self._start_packets(place)
        for sampler in self.samplers.values():
            sampler.start()

    @property
    def pids(self) -> list[int]:
        """The processes that run all along."""
        return [self.packets.process.pid] if self.packets is not None else []

    def _take_ss(self) -> str | None:
        select = self.plan.select
        folders = [cgroups.name_for_ss(each) for each in self._cgroups]
        return samplers.ss_lines(select.prefix, select.ss(folders), select.pids)

    def _note_other_networks(self) -> None:
        """Say of which processes only events are recorded, as of those in a container."""
        select = self.plan.select
        netns = namespace(select.netns) if select.netns else os.stat("/proc/self/ns/net").st_ino
        for pid in process_sockets.in_other_network(select.pids, netns):
            self.notes.append(
                f"process {pid} is in another network namespace: here its packets, queue and"
                f" ss samples cannot be had; begin the command with nsenter -t {pid} -n"
            )

    def _add(self, name: str, period_s: float, take: Callable[[], str | None]) -> Sampler:
        self.samplers[name] = Sampler(name.split(".")[0], self.outputs.open(name), period_s, take)
        return self.samplers[name]

    def _start_queue(self, queue: Place) -> None:
        if self._queue is not None and not samplers.queue_rows(queue):
            raise HostError(
                f"cannot sample the queue of {queue.text}",
                f"try it by hand: {' '.join(queue.command('tc', 'qdisc', 'show'))}",
            )
        sampler = self._add(QUEUE, samplers.QUEUE_S, lambda: samplers.queue_rows(queue))
        sampler.output.write(f"{samplers.QUEUE_HEADER}\n".encode())

    def _place_of_route(self) -> Place | None:
        """The device that the traffic leaves by."""
        select = self.plan.select
        peer = next(iter(select.addresses), None) or address_in(self.plan.command)
        device = route_device(peer, select.prefix)
        if device is None:
            wanted = "packets and queue" if self.plan.packets else "the queue's samples"
            self.notes.append(f"no route found for {wanted}: give --interface")
            return None
        return Place(f"{select.netns}:{device}" if select.netns else device)

    def _start_packets(self, place: Place) -> None:
        if os.geteuid() != 0:
            self.notes.append("no packets: not root")
            return
        if shutil.which("tcpdump") is None:
            self.notes.append("no packets: tcpdump is missing (apt-get install tcpdump)")
            return
        plan, output = self.plan, self.outputs.open(PACKETS)
        expression = plan.select.pcap()
        self.packets = PacketCapture(place, output, plan.ring_kib, expression, plan.snaplen)
        if not self.packets.wait_listening():
            self.notes.append(f"no packets: tcpdump said {self.packets.complaint()!r}")
            self.packets.stop()
            self.packets = None
            self.outputs.drop(PACKETS)

    @property
    def socket_samples(self) -> int:
        """How many times a socket was seen by ss."""
        return self.samplers[SS].rows if SS in self.samplers else 0

    @property
    def polls(self) -> int:
        """How many times ss was asked."""
        return self.samplers[SS].polls if SS in self.samplers else 0

    def written(self) -> int:
        """Compressed bytes so far."""
        outputs = [sampler.output for sampler in self.samplers.values()]
        outputs += [self.packets.output] if self.packets else []
        return sum(output.written for output in outputs)

    def write_error(self) -> OSError | None:
        """The first write that failed, if any."""
        errors = [sampler.error for sampler in self.samplers.values()]
        errors += [self.packets.pump.error] if self.packets else []
        return next((error for error in errors if error), None)

    def stop(self) -> dict[str, Any] | None:
        """End everything; return the manifest's `packets`. Safe to call in any state."""
        described = None
        if self.packets is not None:
            with contextlib.suppress(OSError):
                described = self.packets.stop()
            self.notes += self.packets.notes()
        for sampler in self.samplers.values():
            if sampler.ident is not None:
                with contextlib.suppress(OSError):
                    sampler.stop()
                self.notes += sampler.notes()
        while self._cgroups:
            os.close(self._cgroups.pop())
        return described
