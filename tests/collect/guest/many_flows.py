"""Make flows of every kind over loopback under BBR, and write down which: FILE LONG SHORT NAME.

NAME is the kernel's for its BBR (net.ipv4.tcp_available_congestion_control).

Each line of FILE is a connection as JSON: its kind, family, and the ports of both ends. Kinds: LONG
flows at once, SHORT ones one after the other, one that leaves BBR and takes it up again, and MPTCP
where the kernel has it. Half of the long and of the short ones go over IPv6.
"""

import json
import socket
import sys
import threading
import time

MPTCP = 262  # IPPROTO_MPTCP, linux/in.h
BBR = sys.argv[4].encode()


def listener(address, protocol=0):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM, protocol)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, BBR)
    server.bind((address, 0))
    server.listen(200)
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    return family, protocol, server.getsockname()[:2]


def serve(server):
    while True:
        peer, _ = server.accept()
        threading.Thread(target=drain, args=(peer,), daemon=True).start()


def drain(peer):
    with peer:
        while data := peer.recv(1 << 16):
            peer.sendall(data[:10])


def connect(kind, place):
    family, protocol, address = place
    client = socket.socket(family, socket.SOCK_STREAM, protocol)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, BBR)
    client.connect(address)
    lines.append((kind, address[0], client.getsockname()[1], address[1]))
    return client


def exchange(client, size=3000):
    client.sendall(b"x" * size)
    client.recv(1 << 16)


lines = []
path, long, short = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
places = [listener("127.0.0.1"), listener("::1")]
flows = [connect("long", places[number % 2]) for number in range(long)]
for _ in range(5):
    for flow in flows:
        exchange(flow, 20000)
    time.sleep(0.05)
for number in range(short):
    with connect("short", places[number % 2]) as flow:
        exchange(flow)
with connect("changing", places[0]) as flow:
    exchange(flow)
    for control in (b"cubic", BBR):
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)
        exchange(flow)
try:
    place = listener("127.0.0.1", MPTCP)
except OSError:
    pass
else:
    with connect("mptcp", place) as flow:
        exchange(flow)
time.sleep(2.5)  # ss looks once a second, and all of them are to be open when it does
for flow in flows:
    exchange(flow)
    flow.close()
time.sleep(0.2)
with open(path, "w") as file:
    for row in lines:
        file.write(json.dumps(row) + "\n")
