"""Takes batches through the student's Pipeline, on stages that ask the judge.

The judge computes the truth with the same `network`, unsplit, in one process.
"""

from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

LIBRARY = "torch.distributed.pipelining torch.distributed.fsdp"


def network(widths: list[int]) -> nn.Sequential:
    """The whole network: one layer between each two widths."""
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(widths)]
    return nn.Sequential(*layers)


class Watched(nn.Module):
    """A stage whose last piece is the judge's: nothing goes on before it has answered.

    So it is known outside what has come to this stage, when, and in which order.
    """

    def __init__(self, layers: nn.Module):
        super().__init__()
        self.layers, self.batch = layers, -1

    def begin(self) -> None:
        """Begin with the next batch."""
        self.batch += 1
        self.numbers: dict[tuple, int] = {}  # of the micro-batches, by what has come

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from averaging import Factor

        key, held = tuple(x.flatten().tolist()), 0
        if key not in self.numbers:  # else it is computed anew for its backward
            held = self.held()
            self.numbers[key] = len(self.numbers)
        number = self.numbers[key]
        ahead = partial(self.ask, "F", number, held)
        return Factor.apply(self.layers(x), ahead, partial(self.ask, "B", number, 0))

    def held(self) -> int:
        """Return how many earlier micro-batches are in memory, be it as copies."""
        from tensors import contents

        everything = [np.frombuffer(data, np.float32) for data in contents(4)]
        return sum(any(holds(row, key) for row in everything) for key in self.numbers)

    def ask(self, step: str, number: int, held: int, came: torch.Tensor) -> float:
        """Let the judge do its piece of a forward or a backward."""
        from ranks import ask

        return ask(step=step, batch=self.batch, number=number, held=held)


def holds(row: np.ndarray, key: tuple) -> bool:
    """Tell whether the numbers `key` are somewhere in a row."""
    part = np.array(key, row.dtype)
    begins = np.flatnonzero(row[: max(0, len(row) - len(part) + 1)] == part[0])
    return any(np.array_equal(row[at : at + len(part)], part) for at in begins)


def train(
    program: ModuleType, stage: Watched, given: dict, device: torch.device
) -> dict[str, Any]:
    """Take the batches of each step, then step; return what the judge wants to see."""
    from averaging import flat, gradients
    from tensors import tensor_bytes

    pipeline = program.Pipeline(stage, given["width"])
    optimizer = torch.optim.SGD(stage.parameters(), lr=given["rate"])
    outputs, grads, params, held = [], [], [], []
    for batches in given["plan"]:
        optimizer.zero_grad()
        for number in batches:
            x, target = (
                torch.from_numpy(given[name][number]).to(device)
                if name in given
                else None
                for name in ("x", "target")
            )
            stage.begin()
            out = pipeline.run(given["rows"], x, target)
            outputs.append(None if out is None else flat([out]))
        grads.append(gradients(stage))
        optimizer.step()
        params.append(flat(stage.parameters()))
        held.append(tensor_bytes())
    dist.barrier()  # who is late with a message finds everybody still there
    result = {"grads": np.array(grads), "params": np.array(params), "held": held}
    if all(out is not None for out in outputs):
        result["outputs"] = np.array(outputs)
    return result


def main() -> None:
    """Inputs: task; for "cut" the questions, [layers, ranks] each; else widths (of this
    stage), width (what comes in), params, rows, rate, x (batches, samples, width) on
    the first rank, target on the last one, and by step the batches to take.
    """
    from averaging import fill
    from ranks import answer, give, inputs, process_group

    given = inputs()
    with process_group() as (_, _, device):
        if given["task"] == "cut":
            program = answer("split.py", library=LIBRARY)
            cut = program.cut
            return give(bounds=[[int(b) for b in cut(*q)] for q in given["questions"]])
        layers = network(given["widths"])
        fill(layers.parameters(), given["params"])
        stage = Watched(layers).to(device)
        program = answer("split.py", library=LIBRARY)
        give(**train(program, stage, given, device))


if __name__ == "__main__":
    main()
