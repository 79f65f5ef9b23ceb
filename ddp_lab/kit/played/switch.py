"""Hold what a node sends for a while, as a long cable does.

    python -IS switch.py

network.py starts it in the network namespace of the switch, where it joins pairs of
links:

    eth0 <--- link ---> node0 - switch.py - held0 <--- link ---> late0 - bridge

What comes in at `node0` goes out at `held0` so much later, and what comes in at `held0`
goes out at `node0` at once. (The kernel's own netem is not in every kernel. This costs
0.05 ms and carries about 1 Gbit/s.)

Our stdin is a socket of packets. Each is an order, `node0 held0 0.005` (seconds), and
is answered when it has been carried out. When the socket closes, we end. Signals that
ask to end are for its owner.
"""

import _signal as signal
import os
import select
import socket
import time
from collections import deque

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23  # see packet(7)
ALL_FRAMES = 3  # ETH_P_ALL
LONGEST = 1 << 17  # bytes of a frame: TCP hands over 64 KB at once
ROOM = 1 << 24  # bytes of frames that wait for us, if so much is allowed
AT_ONCE = 64  # frames that we take before we look at the clock


class Wire:
    """Joins two links."""

    def __init__(self, near: str, far: str, seconds: str):
        self.near, self.far, self.seconds = _end(near), _end(far), float(seconds)
        self.held: deque[tuple[float, bytes]] = deque()  # when each goes out

    def carry(self, end: socket.socket) -> None:
        """Take what has come in at an end; pass it on, or hold it."""
        for _ in range(AT_ONCE):
            try:
                frame = end.recv(LONGEST)
            except OSError:  # no more, or the cable is cut
                return
            if end is self.near:
                self.held.append((time.monotonic() + self.seconds, frame))
            else:
                _send(self.near, frame)

    def release(self) -> None:
        """Send what has been held long enough."""
        while self.held and self.held[0][0] <= time.monotonic():
            _send(self.far, self.held.popleft()[1])


def _end(name: str) -> socket.socket:
    """Return a socket for all frames of a link, large ones as the kernel has them."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
    end.bind((name, ALL_FRAMES))
    end.setblocking(False)
    return end


def _send(end: socket.socket, frame: bytes) -> None:
    try:
        end.send(frame)
    except OSError:
        pass  # the cable is cut


def main() -> None:
    """Carry frames, and follow orders, until nobody is there to give any."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    orders = socket.socket(fileno=0)
    wires: list[Wire] = []
    while True:
        due = [wire.held[0][0] for wire in wires if wire.held]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        ends = {end: wire for wire in wires for end in (wire.near, wire.far)}
        ready, _, _ = select.select([orders, *ends], [], [], wait)
        for end in ready:
            if end in ends:
                ends[end].carry(end)
        for wire in wires:
            wire.release()
        if orders in ready:
            order = orders.recv(1000).decode()
            if not order:
                os._exit(0)
            wires.append(Wire(*order.split()))
            orders.send(b"done")


if __name__ == "__main__":
    main()
