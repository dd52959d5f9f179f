"""What ss prints, socket by socket."""

from __future__ import annotations

import re

# As misc/ss.c of iproute2 names them, each followed by the sizes of two queues.
BEGIN = re.compile(
    r"^(?:ESTAB|SYN-SENT|SYN-RECV|FIN-WAIT-[12]|TIME-WAIT|UNCONN|CLOSE-WAIT|LAST-ACK|LISTEN|CLOSING"
    r"|UNKNOWN) +[0-9]+ +[0-9]+ "
)


def socket_lines(text: str) -> list[str]:
    """One line for each socket that `ss -OH` printed.

    Names of programs and cgroups are printed as they are, line breaks and all.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if lines and not BEGIN.match(line):
            lines[-1] += f" {line}" if line else ""
        elif line:
            lines.append(line)
    return [" ".join(line.splitlines()) for line in lines]
