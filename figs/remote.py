"""The static figures of remote calls: three ways to call, and who owns an object."""

from collections.abc import Sequence

from ddp_lab.kit.draw.colors import GREY
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import BAR, START, clock, lane

CALLED, RETURNS = 200, 470  # when the function begins and ends at the callee


@figure
def remote_calls() -> Page:
    """Draw rpc_sync, rpc_async and remote as two workers over time."""
    svg = page(
        "three ways to call a function elsewhere",
        "They differ in what the caller does meanwhile, and in where the result is.",
        "Two workers over time, three times. rpc_sync: worker 0 waits until worker 1 "
        "has run f, and then holds a copy of the result. rpc_async: worker 0 goes on "
        "with other work and waits later, in wait(). remote: worker 0 holds a "
        "reference at once and goes on; the result stays at worker 1, until to_here() "
        "fetches a copy.",
        640,
    )
    draw_call(svg, 116, "rpc_sync(f)", [("waits", RETURNS + 26)])
    draw_call(svg, 292, "rpc_async(f)", [("other work", 400), ("wait()", RETURNS + 26)])
    goes_on = [("reference", 270), ("other work", RETURNS + 26)]
    draw_call(svg, 468, "remote(f)", goes_on, keeps=True)
    clock(svg, 620)
    return svg


def draw_call(
    svg: Page,
    y: float,
    name: str,
    meanwhile: Sequence[tuple[str, float]],
    *,
    keeps: bool = False,
) -> None:
    """Draw a caller and its callee over time.

    `meanwhile` says what the caller does after the call, each until when.
    """
    below, called, end = y + 84, CALLED - 26, RETURNS + 26
    for rank, top in enumerate((y, below)):
        lane(svg, top, rank)
    svg.text(START, y - 16, name, 14, anchor="start", mono=True, bold=True)
    svg.block(START, y, called - START, BAR, "", 0)
    left = float(called)
    for what, right in meanwhile:
        if what.startswith("wait"):
            svg.wait(left, y, right - left, BAR, what)
        else:
            svg.block(left, y, right - left, BAR, what, 0)
        left = right
    svg.block(end, y, 130, BAR, "copy", 0)
    svg.block(CALLED, below, RETURNS - CALLED, BAR, "f", 1, mono=True)
    svg.arrow(CALLED - 24, y + BAR + 4, CALLED, below - 4)
    if keeps:
        svg.block(RETURNS, below, 156, BAR, "the result stays", 1)
        svg.arrow(end + 40, below - 4, end + 40, y + BAR + 4, dash="5 4")
        svg.text(end + 52, y + 62, "to_here()", 13, anchor="start", mono=True)
    else:
        svg.arrow(RETURNS, below - 4, end, y + BAR + 4)


@figure
def remote_references() -> Page:
    """Draw an owner, the references that two users hold, and what is travelling."""
    svg = page(
        "one owner, many references",
        "The object never moves; it lives as long as any worker refers to it.",
        "Worker 3 owns a box. Workers 0 and 1 hold a reference each. Worker 0 has "
        "made the box, with remote, and has sent its reference to worker 1. The owner "
        "counts both; when the last is gone, the box dies. A call through a "
        "reference runs where the box is; to_here brings a copy, which is another box.",
        300,
    )
    svg.chip(40, 92, 96, BAR, 0, "worker 0")
    svg.block(142, 92, 120, BAR, "reference", 0)
    svg.chip(40, 212, 96, BAR, 1, "worker 1")
    svg.block(142, 212, 120, BAR, "reference", 1)
    svg.arrow(202, 138, 202, 206, dash="5 4")
    svg.text(190, 172, "passed on", 13, fill=GREY, anchor="end")
    svg.chip(560, 100, 120, 36, 3, "worker 3")
    svg.block(560, 140, 120, 74, "the box", 3)
    svg.text(620, 236, "counts 2 references", 13, fill=GREY)
    svg.arrow(268, 108, 554, 156)
    svg.text(300, 96, "rpc_sync().add(1)", 13, anchor="start", mono=True)
    svg.arrow(268, 230, 554, 192)
    svg.text(300, 254, "rpc_sync().add(1)", 13, anchor="start", mono=True)
    return svg
