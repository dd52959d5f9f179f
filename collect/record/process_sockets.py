"""Which sockets are a process's: those that it had, those it connects, and where it listens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ...probes.fields import FIELDS
from ...probes.program import probe
from .host.helpers import output_of
from .host.ss_sockets import socket_lines

# include/net/tcp_states.h, uapi/linux/stat.h, uapi/linux/in.h
TCP_SYN_SENT, TCP_LISTEN = 2, 10
S_IFMT, S_IFSOCK = 0xF000, 0xC000
IPPROTO_TCP = 6
# Called for each file that a process is handed (Linux 5.9, net/core/sock.c), in its own context.
RECEIVES = "__receive_sock"
COMMON = "$sk->__sk_common"
# A port that a process listens on is that of its network namespace.
_LISTENING = "@listening[(uint64){netns}, (uint64){port}]"
_HAD = "@had[(uint64){cookie}]"
_NETNS = "__sk_common.skc_net.net->ns.inum"
# bpftrace takes programs of some ten thousand words.
MOST_SOCKETS = 500
SIGCHLD = 17  # asm-generic/signal.h; ignored unless handled
# si_code of the signals that name a socket: below all that the kernel and libraries use.
COOKIE_CODE, PORT_CODE = -(1 << 20), -(1 << 24)
# rt_sigqueueinfo(2), which libc does not have; asm-generic/unistd.h elsewhere.
SYSCALLS = {"x86_64": 129, "ppc64le": 177, "s390x": 178}
GENERIC_SYSCALL = 138
SIGINFO_BYTES = 128
# struct upid of include/linux/pid.h: an int and a pointer.
UPID_BYTES = 16

# A socket is a process's if the process connected it, listens on its local port or was handed it,
# now or later (owner_probes()), or had it before the recording (known_sockets(), tell()).
OF_PROCESS = " || ".join(
    (
        "@mine[(uint64)$sk] == 1",
        f"{_LISTENING.format(netns=f'$sk->{_NETNS}', port=f'{COMMON}.skc_num')} == 1",
        f"{_HAD.format(cookie='$sk->' + FIELDS['sk.cookie'].path)} == 1",
    )
)
# The PID namespace that bpftrace is in: 0 is the host's, a container's is deeper.
LEVEL = "@level"
# The struct pid of the process that runs, whichever of its threads it is.
_PROCESS = "((struct task_struct *)curtask)->group_leader->thread_pid"


@dataclass(frozen=True)
class HowToSee:
    """How a program on this host sees what processes do.

    `argument` is how a tracepoint's argument is read; `numbers_at` the offset of `numbers` in
    struct pid; `received` the attach point of RECEIVES, "" where the kernel has none, and `file`
    the expression of its argument.
    """

    argument: str = ""
    numbers_at: int = 0
    received: str = ""
    file: str = ""


@dataclass(frozen=True, order=True)
class KnownSocket:
    """A connection by the kernel's cookie, which no two share; or where a process listens."""

    cookie: int = 0
    netns: int = 0
    port: int = 0

    @property
    def statement(self) -> str:
        """What marks it in a program."""
        if self.port:
            return f"{_LISTENING.format(netns=self.netns, port=self.port)} = (uint64)1;"
        return f"{_HAD.format(cookie=f'{self.cookie:#x}')} = (uint64)1;"

    @property
    def signal(self) -> tuple[int, int]:
        """What marks it in a running program: si_code and si_errno of a SIGCHLD to bpftrace."""
        if self.port:
            return PORT_CODE - self.port, self.netns
        return COOKIE_CODE - (self.cookie >> 32), self.cookie & 0xFFFFFFFF


def known_sockets(pids: tuple[int, ...]) -> list[str]:
    """Statements that mark the sockets that processes have now, and the ports they listen on.

    Raises:
        HostError: there is no such process, or it has too many sockets.
    """
    found = sockets_of(pids)
    if len(found) > MOST_SOCKETS:
        raise HostError(
            f"these processes have {plural(len(found), 'socket')}: more than {MOST_SOCKETS}"
            " cannot be told"
            " from others",
            "choose by port, address or cgroup: --port, --address, --cgroup",
        )
    # bpftrace takes no map that nothing is written to; 0 is the cookie of a socket without one.
    level = (
        f"{LEVEL}[0] = (uint64)((struct task_struct *)curtask)->group_leader->thread_pid->level;"
    )
    define = [f"{_HAD.format(cookie=0)} = (uint64)0;", level] if pids else []
    return [*define, *(one.statement for one in found)]


def sockets_of(pids: tuple[int, ...]) -> list[KnownSocket]:
    """The sockets that processes have now. Raises HostError: there is no such process."""
    return sorted({one for pid in pids for one in _sockets_of(pid)})


def _sockets_of(pid: int) -> list[KnownSocket]:
    netns, prefix = _network_of(pid)
    found = []
    for line in socket_lines(output_of([*prefix, "ss", "-tanpeOH"])):
        local, cookie = _LOCAL_PORT.match(line), _COOKIE.search(line)
        if f"pid={pid}," not in line or local is None or cookie is None:
            continue
        state, port = local.groups()
        listens = KnownSocket(netns=netns, port=int(port))
        found.append(listens if state == "LISTEN" else KnownSocket(int(cookie[1], 16)))
    return found


def _network_of(pid: int) -> tuple[int, list[str]]:
    """A process's network namespace, and the words before a command that enter it."""
    way_out = "pgrep NAME finds it"
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError as error:
        raise HostError(f"no process {pid}", way_out) from error
    process = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
    if process is not None and int(process[1]) != pid:
        raise HostError(f"{pid} is a thread of process {process[1]}", f"--pid {process[1]}")
    path = Path(f"/proc/{pid}/ns/net")
    try:
        return path.stat().st_ino, ["nsenter", f"--net={path}"]
    except PermissionError:  # without root, or where the kernel hides it: it is most likely ours
        return os.stat("/proc/self/ns/net").st_ino, []
    except OSError as error:
        raise HostError(f"process {pid} has ended", way_out) from error


def in_other_network(pids: tuple[int, ...], netns: int) -> list[int]:
    """The processes that are in another network namespace than this one."""
    apart = []
    for pid in pids:
        with contextlib.suppress(HostError):  # it has ended since
            apart += [pid] if _network_of(pid)[0] != netns else []
    return apart


# A line of ss: state, two queues, and the local address and port; behind them, the cookie.
_LOCAL_PORT = re.compile(r"(\S+) +\d+ +\d+ +\S+:(\d+) ")
_COOKIE = re.compile(r"\bsk:([0-9a-f]+)\b")


def owner_probes(pids: tuple[int, ...], how: HowToSee) -> str:
    """The probes that mark a process's sockets and the ports where it listens.

    A process connects, listens and is handed sockets in its own context, so its number is seen
    there. All other changes of state may come in an interrupt, whatever process it interrupts: over
    loopback the other end's, in that of the one that connects. A socket that a process accepts is
    made by the packet that came in: it is known by its port.
    """
    if not pids:
        return ""
    argument = how.argument
    listening = _LISTENING.format(netns=f"$sk->{_NETNS}", port=f"{argument}sport")
    new = f"{argument}newstate"
    body = [
        f"  if ({new} != {TCP_SYN_SENT} && {new} != {TCP_LISTEN}) {{ return; }}",
        *_skip_other_processes(pids, how.numbers_at),
        f"  if ({new} == {TCP_SYN_SENT}) {{ @mine[(uint64){argument}skaddr] = 1; return; }}",
        f"  $sk = (struct sock *){argument}skaddr;",
        f"  {listening} = (uint64)1;",
    ]
    comment = "Mark the sockets that the process connects, and the ports where it listens."
    marks = probe(comment, "tracepoint:sock:inet_sock_set_state", body)
    handed = [_handed_probe(pids, how)] if how.received else []
    return "\n".join([marks, *handed, _told_probe(argument)])


def _handed_probe(pids: tuple[int, ...], how: HowToSee) -> str:
    """The probe that marks what another process hands over: by SCM_RIGHTS or pidfd_getfd(2)."""
    listening = _LISTENING.format(netns=f"$sk->{_NETNS}", port=f"{COMMON}.skc_num")
    body = [
        f"  $file = (struct file *){how.file};",
        f"  if (((uint64)$file->f_inode->i_mode & {S_IFMT:#x}) != {S_IFSOCK:#x}) {{ return; }}",
        "  $sk = ((struct socket *)$file->private_data)->sk;",
        f"  $is_inet = {COMMON}.skc_family == 2 || {COMMON}.skc_family == 10;",
        f"  if (!$is_inet || $sk->sk_protocol != {IPPROTO_TCP}) {{ return; }}",
        *_skip_other_processes(pids, how.numbers_at),
        f"  if ({COMMON}.skc_state == {TCP_LISTEN}) {{ {listening} = (uint64)1; return; }}",
        "  @mine[(uint64)$sk] = 1;",
    ]
    return probe("Mark the sockets that the process is handed.", how.received, body)


def _skip_other_processes(pids: tuple[int, ...], numbers_at: int) -> list[str]:
    """Statements that return unless this is one of the processes.

    A process has a number in each PID namespace that it is in, the host's first. The one meant is
    that of the namespace which bpftrace is in, too: in a container not what the kernel calls it.
    """
    same = " || ".join(f"$number->nr == {pid}" for pid in pids)
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return [
        f"  $process = {_PROCESS};",
        f"  if ((uint64)$process->level < {LEVEL}[0]) {{ return; }}",
        f"  $at = (uint64)$process + {numbers_at} + {LEVEL}[0] * {UPID_BYTES};",
        "  $number = (struct upid *)$at;",
        f"  if ($number->ns->ns.inum != {namespace} || !({same})) {{ return; }}",
    ]


def _told_probe(argument: str) -> str:
    """The probe that marks what the collector found only when the others were attached.

    The tracepoint fires in the sender's context, also for a signal that is ignored.
    """
    code, number = f"(int64){argument}code", f"(uint64)(uint32){argument}errno"
    ours = f"(uint64){argument}pid == @self[0] && {argument}sig == {SIGCHLD}"
    listening = _LISTENING.format(netns=number, port=f"({PORT_CODE} - {code})")
    high = f"((uint64)({COOKIE_CODE} - {code}) << 32)"
    body = [
        f"  if ({code} < {PORT_CODE}) {{ {listening} = (uint64)1; return; }}",
        f"  @had[{high} | {number}] = (uint64)1;",
    ]
    comment = "SIGCHLD to bpftrace: a socket that the process made while probes were attached."
    point = f"tracepoint:signal:signal_generate\n/{ours} && {code} <= {COOKIE_CODE}/"
    return probe(comment, point, body)


def tell(pids: tuple[int, ...], tracer: int) -> None:
    """Mark what processes have now in the program that bpftrace, process `tracer`, runs.

    What a process connected between known_sockets() and the attaching of its probes is known by
    neither.
    """
    with contextlib.suppress(HostError):  # it has ended since
        for one in sockets_of(pids):
            queue_signal(tracer, *one.signal)


def queue_signal(pid: int, code: int, errno: int) -> None:
    """rt_sigqueueinfo(2) of a SIGCHLD; bpftrace's own end is noticed elsewhere."""
    number = SYSCALLS.get(os.uname().machine, GENERIC_SYSCALL)
    information = ctypes.create_string_buffer(SIGINFO_BYTES)
    values = (ctypes.c_int * 3).from_buffer(information)
    values[:] = [SIGCHLD, ctypes.c_int(errno).value, code]
    ctypes.CDLL(None).syscall(number, pid, SIGCHLD, information)
