"""The figure of fine-tuning: which rank reads what, and what is in no file."""

from collections.abc import Sequence

from ddp_lab.kit.draw.colors import GREY, INK
from figs.gallery import figure
from figs.page import Page, page

FILES = {
    "model-00001-of-00002": ("embed_tokens", "layers.0.q_proj", "…"),
    "model-00002-of-00002": ("layers.1.q_proj", "…", "norm"),
}
RANKS = 4


@figure
def own_rows() -> Page:
    """Draw two files, the rows that each rank reads, and what is in neither."""
    svg = page(
        "each rank reads its own rows",
        "No rank ever holds the whole model: rows go from the files into the shards.",
        "Two files in safetensors, each with several weights. Every weight is cut "
        "along its first dimension into four pieces, one for each rank. Four ranks "
        "below: each reads its pieces of all weights, out of both files. Beside them "
        "a dashed box: what is in no file, and any values after to_empty: RoPE's "
        "frequencies, the head where it is tied to the embedding, the thin weights of "
        "LoRA. Each rank must compute these itself.",
        330,
    )
    for i, (name, weights) in enumerate(FILES.items()):
        draw_file(svg, 40 + 225 * i, name, weights)
    for rank in range(RANKS):
        x = 40 + 112 * rank
        svg.arrow(x + 49, 218, x + 49, 258, width=2)
        svg.block(x, 264, 98, 44, f"rank {rank}", rank, size=14)
    svg.text(250, 236, "own rows", 12, fill=GREY)
    svg.box(506, 78, 184, 230, dash="5 4", stroke=INK)
    svg.text(598, 96, "in no file", 13, bold=True, anchor="middle")
    svg.lines(506, 110, 184, 60, ("RoPE's frequencies", "(a buffer)"))
    svg.lines(506, 168, 184, 60, ("the head,", "tied to the embedding"))
    svg.lines(506, 226, 184, 60, ("the thin weights", "of LoRA"))
    return svg


def draw_file(svg: Page, x: float, name: str, weights: Sequence[str]) -> None:
    """Draw a file: each weight in the pieces of four ranks."""
    svg.box(x, 78, 210, 136, stroke=GREY)
    svg.text(x + 105, 94, name, 12, anchor="middle")
    for i, weight in enumerate(weights):
        y = 108 + 34 * i
        svg.text(x + 8, y + 12, weight, 12, anchor="start")
        for rank in range(RANKS if weight != "…" else 0):
            svg.block(x + 110 + 24 * rank, y, 24, 24, str(rank), rank)
