"""What students get wrong in Split."""

from classroom.engine.assignment import Mistake

AHEAD = "ahead = self.world_size - 1 - self.rank"
MISTAKES = [
    Mistake(
        "the last rank takes what is left over",
        "cut",
        [
            (
                "[rank * each + min(rank, more) for rank in range(world_size + 1)]",
                "[*range(0, world_size * each, each), each * world_size + more]",
            )
        ],
    ),
    Mistake(
        "only the last micro-batch",
        "outputs",
        [("torch.cat(outputs) if", "outputs[-1] if")],
    ),
    Mistake("a mean of means", "grads", [("rows[j] / total", "1 / m")]),
    Mistake(
        "sets the gradients to zero by itself",
        "steps",
        [
            (
                "m, total, outputs = len(rows), sum(rows), []",
                "m, total, outputs = len(rows), sum(rows), []\n"
                "        self.stage.zero_grad()",
            )
        ],
    ),
    Mistake(
        "all forwards first",
        "memory",
        [(AHEAD, "ahead = m")],
        "fail: rank 0 expected at most 2 micro-batches between F and B, got 4",
        also=("bubble",),
    ),
    Mistake(
        "one micro-batch at a time",
        "memory",
        [(AHEAD, "ahead = 0")],
        "fail: rank 0 waits for each micro-batch to come back",
        also=("bubble",),
    ),
    Mistake(
        "one more under way than needed",
        "memory",
        [(AHEAD, "ahead = self.world_size - self.rank")],
    ),
    Mistake(
        "what has come back is kept",
        "memory",
        [("self.kept.pop(i)", "self.kept[i]")],
        "fail: rank 1 expected at most 1 micro-batches in memory",
    ),
    Mistake(
        "no more than two under way",
        "bubble",
        [(AHEAD, "ahead = min(1, self.world_size - 1 - self.rank)")],
        "fail: expected a bubble of 22% = (p - 1) / (m + p - 1), got ",
    ),
]
