"""Hand a connection and a listening socket over while something records: FILE BEFORE AFTER BBR.

Writes the number of the process that gets them to FILE.pid at once. Once FILE.go is there, another
process connects, sends BEFORE bytes and hands its sockets over (SCM_RIGHTS); they then send AFTER
bytes each. FILE gets, as JSON, the local ports of the connection that was handed over, of the one
that the listening socket accepted, and of one that nobody got, and exists when all is done.
"""

import json
import os
import socket
import sys
import threading
import time

path, before, after, bbr = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()


def listener():
    server = socket.create_server(("127.0.0.1", 0))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, bbr)
    return server


def connected(server):
    client = socket.socket()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, bbr)
    client.connect(server.getsockname())
    return client


def drain(server):
    peer, _ = server.accept()
    while peer.recv(1 << 16):
        pass


def receive(channel):
    _, numbers, *_ = socket.recv_fds(channel, 1, 2)
    connection, server = (socket.socket(fileno=number) for number in numbers)
    connection.sendall(b"x" * after)
    accepted, _ = server.accept()
    accepted.sendall(b"x" * after)
    channel.sendall(b"x")
    channel.recv(1)


ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    ours.close()
    receive(theirs)
    os._exit(0)
theirs.close()
with open(path + ".part", "w") as file:
    file.write(str(child))
os.rename(path + ".part", path + ".pid")
while not os.path.exists(path + ".go"):
    time.sleep(0.1)
sinks = [listener(), listener()]
for sink in sinks:
    threading.Thread(target=drain, args=(sink,), daemon=True).start()
handed, kept = map(connected, sinks)
for one in (handed, kept):
    one.sendall(b"x" * before)
listening = listener()
ports = {"handed": handed.getsockname()[1], "accepted": listening.getsockname()[1]}
ports["kept"] = kept.getsockname()[1]
socket.send_fds(ours, [b"x"], [handed.fileno(), listening.fileno()])
reader = connected(listening)
got = 0
while got < after:
    got += len(reader.recv(1 << 16))
kept.sendall(b"x" * after)
ours.recv(1)
with open(path + ".part", "w") as file:
    json.dump(ports, file)
os.rename(path + ".part", path)
