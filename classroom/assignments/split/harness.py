"""Takes batches through the student's Pipeline, on stages that ask the judge.

The judge computes the truth with the same `network`, unsplit, in one process.
"""

from functools import partial
from itertools import pairwise
from types import ModuleType
from weakref import ref

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

LIBRARY = "torch.distributed.pipelining torch.distributed.fsdp"
TOLD = 100  # numbers of a micro-batch that the judge gets to see, at most


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
        self.came: list[ref] = []  # those that are still in memory

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from averaging import Factor

        self.came = [one for one in self.came if one() is not None]
        held, key = len(self.came), tuple(x.flatten().tolist())
        if key not in self.numbers:  # else it is computed anew for its backward
            self.numbers[key] = len(self.numbers)
            self.came.append(ref(x))
        number = self.numbers[key]
        ahead = partial(self.ask, "F", number, key, held)
        return Factor.apply(
            self.layers(x), ahead, partial(self.ask, "B", number, None, 0)
        )

    def ask(
        self, step: str, number: int, x: tuple | None, held: int, at_end: torch.Tensor
    ) -> float:
        """Let the judge do its piece of a forward or a backward."""
        from ranks import ask

        came = at_end.flatten().tolist() if x is None else x  # from right, from left
        numbers = [float(f"{value:.7g}") for value in came[:TOLD]]
        told = {"step": step, "batch": self.batch, "number": number, "held": held}
        return ask(**told, came=numbers)


def train(
    program: ModuleType, stage: Watched, given: dict, device: torch.device
) -> dict[str, object]:
    """Take the batches of each step, then step; return what the judge wants to see."""
    from averaging import flat, gradients

    pipeline = program.Pipeline(stage, given["width"])
    optimizer = torch.optim.SGD(stage.parameters(), lr=given["rate"])
    outputs, grads, params = [], [], []
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
    result: dict[str, object] = {"grads": np.array(grads), "params": np.array(params)}
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
            return give(bounds=[list(program.cut(*q)) for q in given["questions"]])
        layers = network(given["widths"])
        fill(layers.parameters(), given["params"])
        stage = Watched(layers).to(device)
        program = answer("split.py", library=LIBRARY)
        give(**train(program, stage, given, device))
        dist.barrier()  # who is late with a message finds everybody still there


if __name__ == "__main__":
    main()
