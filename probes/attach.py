"""How probes are attached on one host, and what the host's types allow them to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .bbr_layout import Layout

# bpftrace builds a row on the BPF stack of 512 bytes: 0.17 has room for 36 values of v2's or v3's
# struct, not for 41.
VALUES_ON_STACK = 32
# Of packed rows it prints 52 words; 40, enough for v1's row of main(), leave room for conditions.
WORDS_ON_STACK = 40
# From 0.22 on, what is longer than its setting on_stack_limit is built in one buffer per CPU, which
# all its programs share: one that interrupts another there (a packet of one socket the backlog of
# another) overwrites the row that was being built. So no row may be longer but one (below), and the
# limit is the longest object on the stack, in bytes: the number of the printf and 31 words.
STACK_LIMIT = 256
VALUES_IN_LIMIT = 29
# One program alone may use that buffer, main()'s entry, as the kernel does not run a program within
# itself: of fentry since Linux 5.12 (__bpf_prog_enter(); the run that it skips counts as missed),
# of kprobes never (trace_call_bpf()). This many words are more than any version's row has.
WORDS_IN_BUFFER = 80
# Texts, formats of rows among them, may be as long as they are; bpftrace 0.11 takes 64 bytes with
# their end.
LONGEST_TEXT = 1 << 16
SHORT_TEXT = 63

# x86 pushes the return address at a call; all other 64-bit machines that have kprobes keep it in a
# register (arm64 lr, riscv ra, s390 r14, ppc64 lr), and the stack pointer stays as it was.
RETURN_ADDRESS_BYTES = {"x86_64": 8}
# The number by which the kernel's signal tracepoint knows bpftrace. In a container this is not what
# bpftrace 0.22 and later call `pid`: they take the container's number.
OWN_NUMBER = "@self[0] = (uint64)((struct task_struct *)curtask)->tgid;"


def return_address_bytes(machine: str) -> int:
    """What a call pushes on the stack of this machine, named as by uname(2)."""
    return RETURN_ADDRESS_BYTES.get(machine, 0)


@dataclass(frozen=True)
class Attach:
    """How the probes of one rung of the attach ladder are written.

    `rung` is fentry, kprobe or tcp_probe; `entry`/`exit` the keywords of this bpftrace ("fentry" or
    "kfunc"); `argument` how an fentry argument is read ("args." or "args->"); `module` the module
    of the functions, "" when they are built in; `parameters` the parameter names of the main
    function, which give kprobe its registers; `jiffies` and `clock` (ns) the expressions that
    read them ("" when the host hides jiffies); `raw` whether raw tracepoints can be used;
    `values_per_row` how many values this bpftrace can print at once; `return_address_bytes` how
    many bytes a call pushes on the stack, by the machine's calling convention; `names_modules`
    whether fentry's attach points name the module (bpftrace 0.17 and newer) or the function only;
    `words_per_row` as `values_per_row`, for rows whose values hold several fields each
    (shared_words.py), 0 where every field is printed by itself, for people; `words_of_main` the
    same for the row of main()'s entry, if it may be longer than others; `longest_text` the
    longest text of a printf, in bytes; `stack_limit` the longest object [bytes] that bpftrace is
    told to build on the stack, 0 where it builds every row there.
    """

    rung: str
    entry: str = "fentry"
    exit: str = "fexit"
    argument: str = "args."
    module: str = ""
    parameters: Sequence[str] = ("sk", "rs")
    jiffies: str = "jiffies"
    clock: str = "nsecs(monotonic)"
    raw: bool = False
    values_per_row: int = VALUES_IN_LIMIT
    return_address_bytes: int = 8
    names_modules: bool = True
    longest_text: int = LONGEST_TEXT
    words_per_row: int = 0
    words_of_main: int = 0
    stack_limit: int = STACK_LIMIT

    @property
    def call_at_entry(self) -> str:
        """The expression that identifies a call under kprobe: the stack pointer at entry."""
        return 'reg("sp")'

    @property
    def call_at_return(self) -> str:
        """The same value at the return probe: the return address has left the stack by then."""
        if self.return_address_bytes == 0:
            return self.call_at_entry
        return f"{self.call_at_entry} - {self.return_address_bytes}"

    @property
    def settings(self) -> list[str]:
        """The program's block of settings, if it has one."""
        if not self.stack_limit:
            return []
        why = "Longer rows would be built in a buffer of the CPU, which all programs share."
        if self.words_of_main:
            why = "Longer rows are built in a buffer of the CPU: those of M alone, by one program."
        return [f"// {why}\nconfig = {{ on_stack_limit={self.stack_limit} }}\n"]

    def point(self, function: str, is_exit: bool = False, module: str = "") -> str:
        """The attach point of a function, which is in `module` or else where BBR's are."""
        if self.rung == "kprobe":
            return f"{'kretprobe' if is_exit else 'kprobe'}:{function}"
        keyword = self.exit if is_exit else self.entry
        if not self.names_modules:
            return f"{keyword}:{function}"
        return f"{keyword}:{module or self.module or 'vmlinux'}:{function}"

    def read_argument(self, name: str, position: int) -> str:
        """The expression of a function's argument: kprobes know it by its register only."""
        return f"arg{position}" if self.rung == "kprobe" else f"{self.argument}{name}"

    def members_of(self, name: str) -> str:
        """What the members of the struct are read from that the argument `name` points to.

        From 0.22 on, bpftrace loads members of fentry's own arguments; of a variable of the same
        value it copies each by a call of bpf_probe_read_kernel().
        """
        return f"{self.argument}{name}" if self.rung == "fentry" else f"${name}"

    def trace(self, name: str) -> tuple[str, str, str]:
        """(attach point, socket, skb) of a TCP tracepoint.

        bpftrace 0.17 has no raw tracepoints; old kernels' tcp_probe has no skaddr.
        """
        if self.raw:
            return f"rawtracepoint:{name}", "arg0", "arg1"
        return f"tracepoint:tcp:{name}", f"{self.argument}skaddr", f"{self.argument}skbaddr"


@dataclass(frozen=True)
class Host:
    """What the host's types allow: columns that are not in its BTF are left out.

    `has(struct, member)` answers for vmlinux; `cb` is the offset of sk_buff.cb in bytes or as an
    expression, `marks` whether v1's loss marks can be had from tcp_mark_skb_lost().
    """

    layout: Layout
    cb: int | str
    has: Callable[[str, str], bool] = field(default=lambda _struct, _member: True)
    marks: bool = False
