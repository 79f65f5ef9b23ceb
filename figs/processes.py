"""The static figures of processes: who they are, and who waits for whom."""

from math import cos, radians, sin

from ddp_lab.kit.draw import Svg
from ddp_lab.kit.draw.colors import GREY, RULE, rank_color
from ddp_lab.kit.draw.values import held
from figs.gallery import figure
from figs.page import Page, page

START, END = 124, 680  # where time begins and ends on a page with lanes
BAR = 40  # the height of what a rank does


def lane(svg: Page, y: float, rank: int) -> None:
    """Draw the line of a rank's time, with its name, in the middle of bars at `y`."""
    svg.line(START - 20, y + BAR / 2, END, y + BAR / 2, stroke=RULE)
    svg.chip(40, y, 64, BAR, rank)


def clock(svg: Page, y: float) -> None:
    """Draw the arrow of time."""
    svg.arrow(START, y, END, y, stroke=GREY)
    svg.text(START - 20, y, "time", 13, fill=GREY, anchor="end")


def moment(svg: Page, x: float, y1: float, y2: float, text: str) -> None:
    """Mark a moment with a dashed line from `y1` to `y2`, and name it below."""
    svg.line(x, y1, x, y2, stroke=GREY, width=1.2, dash="4 4")
    svg.text(x, y2 + 12, text, 13, fill=GREY)


@figure
def ranks_cell() -> Svg:
    """Draw what the cell of %%ranks in README.md shows."""
    return held("x", [[6, 10, 14]] * 4)


@figure
def world() -> Page:
    """Draw two machines with two ranks each: rank, local rank, world size."""
    svg = page(
        "rank, local rank, world size",
        "One process is one rank.",
        "Two machines, node 0 and node 1, each with one torchrun that starts two "
        "processes. The processes of node 0 are rank 0 (local rank 0) and rank 1 "
        "(local rank 1); those of node 1 are rank 2 (local rank 0) and rank 3 (local "
        "rank 1). Both torchruns meet at one rendezvous; the world size is 4.",
        424,
    )
    svg.block(250, 80, 220, 40, "rendezvous: host and port")
    for node in (0, 1):
        draw_node(svg, 40 + 330 * node, node)
        svg.arrow(195 + 330 * node, 172, 300 + 120 * node, 124, stroke=GREY)
    svg.path("M40 364v10h640v-10", stroke=GREY)
    svg.text(360, 394, "world size 4", 14, bold=True)
    return svg


def draw_node(svg: Page, x: float, node: int) -> None:
    """Draw one machine: its torchrun and the two processes that this starts."""
    svg.box(x, 150, 310, 200, fill="none", dash="6 5")
    svg.text(x + 16, 168, f"node {node}", 13, fill=GREY, anchor="start")
    svg.block(x + 95, 172, 120, 36, "torchrun", mono=True)
    for local in (0, 1):
        left, rank = x + 16 + 144 * local, 2 * node + local
        svg.arrow(x + 125 + 60 * local, 212, left + 67, 238, stroke=GREY)
        svg.box(left, 242, 134, 92, stroke=rank_color(rank))
        svg.chip(left, 242, 134, 34, rank)
        svg.text(left + 67, 294, f"local rank {local}", 14)
        svg.text(left + 67, 316, f"GPU {local}, or CPU", 13, fill=GREY)


@figure
def p2p_send_recv() -> Page:
    """Draw a send that waits for its recv, and one that does not."""
    svg = page(
        "send and recv: which of the two?",
        "Rank 1 comes late. Does rank 0 wait for it?",
        "Two ways in which a send could work, each as two ranks over time. In both, "
        "rank 0 calls send early, while rank 1 is still busy. One way: rank 0 waits "
        "until rank 1 calls recv, then the tensor x crosses and both go on. The other "
        "way: rank 0 leaves x somewhere and goes on at once; rank 1 finds it later.",
        504,
    )
    draw_send(svg, 122, "either", waits=True)
    draw_send(svg, 306, "or", waits=False)
    clock(svg, 482)
    return svg


def draw_send(svg: Page, y0: float, word: str, *, waits: bool) -> None:
    """Draw two ranks over time: a send, and a recv that comes late."""
    sent, called, done = START + 86, 420, 540
    y1 = y0 + 88
    for rank, y in enumerate((y0, y1)):
        lane(svg, y, rank)
    svg.text(40, y0 - 16, word, 14, anchor="start", bold=True)
    svg.text(sent + 4, y0 - 14, "send(x, dst=1)", 13, anchor="start", mono=True)
    svg.text((called + done) / 2, y1 - 14, "recv(x, src=0)", 13, mono=True)
    svg.block(START, y0, 86, BAR, "makes x", 0)
    svg.block(START, y1, called - START, BAR, "still busy", 1)
    if waits:
        svg.wait(sent, y0, called - sent, BAR, "waits")
        svg.block(called, y0, done - called, BAR, "x", 0, mono=True)
        svg.block(done, y0, 110, BAR, "goes on", 0)
        x = (called + done) / 2
        svg.arrow(x, y0 + BAR + 4, x, y1 - 26)
    else:
        svg.block(sent, y0, 36, BAR, "x", 0, mono=True)
        svg.block(sent + 36, y0, 614 - sent, BAR, "goes on", 0)
        svg.arrow(sent + 40, y0 + BAR + 4, called - 12, y1 + 4, dash="5 4")
    svg.block(called, y1, done - called, BAR, "x", 0, mono=True)
    svg.block(done, y1, 110, BAR, "goes on", 1)


@figure
def p2p_deadlock() -> Page:
    """Draw two ranks that both send first, and therefore wait for ever."""
    svg = page(
        "two sends, no recv",
        "Each send waits for a recv that stands behind the other send.",
        "Two ranks over time. Both call send first and wait inside it, each for the "
        "recv of the other. Both recv calls stand on the line after the send, so "
        "neither is ever reached: a deadlock.",
        306,
    )
    late = 540
    for rank, y in enumerate((114, 212)):
        other, ghost = 1 - rank, rank_color(rank)
        lane(svg, y, rank)
        call = f"send(x, dst={other})"
        svg.text(START + 4, y - 14, call, 13, anchor="start", mono=True)
        svg.wait(START, y, late - 40 - START, BAR, f"waits for rank {other}'s recv")
        svg.box(late, y, 130, BAR, stroke=ghost, dash="5 4")
        svg.label(late, y, 130, BAR, f"recv(y, src={other})", fill=GREY, mono=True)
        svg.text(late + 65, y - 14, "never reached", 13, fill=GREY)
    svg.arrow(late - 76, 158, late - 6, 216, dash="5 4")
    svg.arrow(late - 76, 208, late - 6, 150, dash="5 4")
    clock(svg, 282)
    return svg


@figure
def p2p_ring() -> Page:
    """Draw a token that goes once round four ranks."""
    svg = page(
        "a token round the ring",
        "Every rank adds its number and passes it on.",
        "Four ranks in a ring. Rank 0 sends the token 0 to rank 1, which adds its "
        "number and sends 0+1 to rank 2, which sends 0+1+2 to rank 3, which sends "
        "0+1+2+3 back to rank 0. Every rank receives from its left neighbor and sends "
        "to its right one.",
        376,
    )
    x, y, radius = 210, 226, 106
    for rank, label in enumerate(("0", "0+1", "0+1+2", "0+1+2+3")):
        angle = 90 * rank - 90
        draw_hop(svg, x, y, radius, angle, label)
        cx, cy = x + radius * cos(radians(angle)), y + radius * sin(radians(angle))
        svg.chip(cx - 38, cy - 20, 76, 40, rank)
    for i, (name, sign) in enumerate((("left", "-"), ("right", "+"))):
        svg.text(452, 168 + 24 * i, name, 13, anchor="end", mono=True)
        side = f"= (rank {sign} 1) % world_size"
        svg.text(460, 168 + 24 * i, side, 13, anchor="start", mono=True)
    svg.text(412, 244, "Rank 0 sends first, then receives.", 14, anchor="start")
    svg.text(412, 270, "The others receive first, then send.", 14, anchor="start")
    return svg


def draw_hop(
    svg: Page, x: float, y: float, radius: float, angle: float, label: str
) -> None:
    """Draw the quarter of a ring from one rank to the next, and what travels on it."""

    def at(degrees: float, r: float = radius) -> tuple[float, float]:
        return x + r * cos(radians(degrees)), y + r * sin(radians(degrees))

    # The boxes are wider than they are high: keep clear of them, above and beside.
    leave, arrive = (28, 70) if angle % 180 else (20, 58)
    (x1, y1), (x2, y2) = at(angle + leave), at(angle + arrive - 4)
    svg.path(f"M{x1:.1f} {y1:.1f}A{radius} {radius} 0 0 1 {x2:.1f} {y2:.1f}", width=2)
    tangent = radians(angle + arrive + 88)
    svg.head(*at(angle + arrive), cos(tangent), sin(tangent), size=10)
    tx, ty = at(angle + 45, radius + 20)
    svg.text(tx, ty, label, 14, anchor="start" if tx > x else "end", mono=True)


@figure
def barrier() -> Page:
    """Draw four ranks that wait for the last of them."""
    svg = page(
        "dist.barrier()",
        "No rank leaves before the last one has arrived.",
        "Four ranks over time reach a barrier one after the other: rank 1 first, then "
        "rank 3, then rank 0, and rank 2 last. Those who came early wait; at the "
        "moment when rank 2 arrives, all four go on together.",
        354,
        mono=True,
    )
    leave = 500
    for rank, arrives in enumerate((390, 230, leave, 310)):
        y = 84 + 52 * rank
        lane(svg, y, rank)
        svg.block(START, y, arrives - START, BAR, "works", rank)
        if arrives < leave:
            svg.wait(arrives, y, leave - arrives, BAR, "waits")
        svg.block(leave, y, 120, BAR, "goes on", rank)
    moment(svg, leave, 74, 292, "rank 2 arrives")
    clock(svg, 326)
    return svg


@figure
def async_overlap() -> Page:
    """Draw two ranks that compute while their all_reduce is under way."""
    svg = page(
        "async_op=True, and a wait()",
        "The sum travels while both ranks compute; neither reads x before it arrives.",
        "Two ranks over time. Each makes x, calls all_reduce with async_op=True, which "
        "returns at once, and computes something else. The sum begins to travel when "
        "rank 1, the later one, has called. Rank 0 has done its computing before the "
        "sum has come, and waits for it in work.wait(); rank 1 computes longer. "
        "Only then do both read x. From the call to the "
        "end of wait(), x belongs to the library.",
        378,
    )
    top, low, middle = 122, 258, 190
    called, waits, came = (210, 330), 450, 540
    for rank, y in enumerate((top, low)):
        lane(svg, y, rank)
        svg.block(START, y, called[rank] - START, BAR, "makes x", rank)
        svg.block(came, y, 104, BAR, "reads x", rank)
        leaves, arrives = (low, middle + BAR + 4) if rank else (top + BAR, middle - 4)
        svg.arrow(called[rank] + 4, leaves, 338, arrives, stroke=GREY)
    svg.block(called[0], top, waits - called[0], BAR, "computes", 0)
    svg.wait(waits, top, came - waits, BAR, "waits")
    svg.block(called[1], low, came - called[1], BAR, "computes", 1)
    svg.shared(called[1], middle, 530 - called[1], BAR, ["the sum travels"], (0, 1))
    call = "all_reduce(x, async_op=True)"
    svg.text(called[0], top - 18, call, 13, anchor="start", mono=True)
    svg.text(waits, top - 18, "work.wait()", 13, anchor="start", mono=True)
    clock(svg, 340)
    return svg
