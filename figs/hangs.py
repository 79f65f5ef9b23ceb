"""The static figure of the clinic: from what stands still to where to look."""

from ddp_lab.kit.draw.colors import GREY, INK, PALE
from figs.gallery import figure
from figs.page import Page, page

ASK, TELL, WIDE, HIGH = 40, 364, 250, 54  # where boxes begin, and their size
STEP = 88  # from one question to the next

QUESTIONS = (
    (
        ("Has a rank ended?",),
        (
            "Read what the first rank to end said.",
            "The others have only lost a partner.",
        ),
    ),
    (
        ("Stacks, taken twice:", "does one change?"),
        ("Not a hang: a rank is busy,", "or a loop has no end."),
    ),
    (
        ("Are they all in", "init_process_group?"),
        (
            "They do not meet: count the processes,",
            "compare MASTER_ADDR and MASTER_PORT.",
        ),
    ),
    (
        ("Is one rank at", "another line?"),
        ("How did it get there? An if, a batch", "too many, an error on its way out."),
    ),
    (
        ("Are they all in", "send or recv?"),
        ("Draw who waits for whom,", "and find the circle."),
    ),
    (
        ("Recorder: does a call", "differ, or a group?"),
        ("The first number that differs:", "what did one rank call, or leave out?"),
    ),
)


@figure
def hang_tree() -> Page:
    """Draw the questions to ask of a program that stands still, in their order."""
    told = " ".join(
        f"{' '.join(ask)} If yes: {' '.join(tell)} If no, go on."
        for ask, tell in QUESTIONS
    )
    height = 84 + STEP * len(QUESTIONS) + HIGH + 20
    svg = page(
        "Nothing more is printed",
        "Ask in this order: the first yes says where to look.",
        f"A decision tree, from the first question to the last. {told} At the end, ask "
        "for contents: shapes and dtypes by DETAIL, values by the program's own truth; "
        "between machines, the network.",
        height,
    )
    for i, (ask, tell) in enumerate(QUESTIONS):
        y = 84 + STEP * i
        middle, below = y + HIGH / 2, y + HIGH
        svg.box(ASK, y, WIDE, HIGH, fill=PALE, stroke=INK)
        svg.lines(ASK, y, WIDE, HIGH, ask, 14)
        svg.arrow(ASK + WIDE + 2, middle, TELL - 4, middle)
        svg.text((ASK + WIDE + TELL) / 2 - 4, middle - 12, "yes", 13, fill=GREY)
        svg.box(TELL, y, 680 - TELL, HIGH)
        svg.lines(TELL, y, 680 - TELL, HIGH, tell)
        svg.arrow(ASK + WIDE / 2, below + 2, ASK + WIDE / 2, y + STEP - 4)
        svg.text(ASK + WIDE / 2 + 20, below + 16, "no", 13, fill=GREY)
    y = 84 + STEP * len(QUESTIONS)
    svg.box(ASK, y, 680 - ASK, HIGH)
    last = (
        "The calls agree, so look into them: DETAIL compares shapes and dtypes,",
        "the program's own truth compares values. On several machines: the network.",
    )
    svg.lines(ASK, y, 680 - ASK, HIGH, last)
    return svg
