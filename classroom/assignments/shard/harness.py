"""Takes steps with the student's ShardedOptimizer, and tells what came of them.

There is no network: gradients are drawn, and every rank has its own, as it has its own
parameters to begin with. So the judge, who takes the same steps unsharded once for each
rank, can tell from a number alone which rank has made it: the owner of its state.
The wire's machine draws them, step by step: neither those of a step that is over, nor
those to come, are in any process that is judged.
"""

import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

Draw = Callable[[int, type], np.ndarray]
INNER = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}
LIBRARY = "torch.distributed.optim torch.distributed.fsdp torch.distributed._composable"


class Training:
    """The parameters of one rank, its gradients, and the steps taken with them.

    Args:
        given: the inputs; see `main`. The common seed is taken out of it.
        draw: given how many and their dtype, draws this rank's next numbers.
    """

    def __init__(self, given: dict, draw: Draw):
        self.given, self.draw, self.parameters = given, draw, list[nn.Parameter]()
        common = np.random.default_rng(given.pop("common")).standard_normal
        both = zip(self.drawn(draw), self.drawn(common), strict=True)
        for number, (mine, same) in enumerate(both):
            # Who has no gradient in its first step is sent or not, as you like.
            parameter = nn.Parameter(same if self.waits(number) else mine)
            parameter.requires_grad_(number not in given["frozen"])
            self.parameters.append(parameter)

    def drawn(self, draw: Draw) -> Iterator[torch.Tensor]:
        """Draw numbers for all parameters at once; return them in their shapes."""
        sizes = [math.prod(shape) for shape in self.given["shapes"]]
        row = torch.from_numpy(draw(sum(sizes), np.dtype(self.given["dtype"]).type))
        for part, shape in zip(row.split(sizes), self.given["shapes"], strict=True):
            yield part.clone().view(shape)

    def waits(self, number: int) -> bool:
        """Tell whether a parameter has no gradient when it comes to the optimizer."""
        first = next(g["at"] for g in self.given["groups"] if number in g["params"])
        return number in self.given["without"][first]

    def groups(self, step: int) -> list[dict]:
        """Return the groups that come to the optimizer before `step`."""
        return [
            {
                "params": [self.parameters[i] for i in group["params"]],
                **group["options"],
            }
            for group in self.given["groups"]
            if group["at"] == step
        ]

    def take(self, optimizer: torch.optim.Optimizer) -> Iterator[np.ndarray]:
        """Take the steps; yield after each one all parameters in a row."""
        scheduler = None
        if gamma := self.given["gamma"]:
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
        for step in range(self.given["steps"]):
            for group in self.groups(step) if step else []:
                optimizer.add_param_group(group)
            for place, name, value in self.given["changes"][step]:
                optimizer.param_groups[place][name] = value
            self.put_gradients(self.given["without"][step])
            optimizer.step()
            if scheduler:
                scheduler.step()
            yield self.row()

    def put_gradients(self, without: list[int]) -> None:
        """Give new gradients to all parameters but those with these numbers."""
        pairs = zip(self.parameters, self.drawn(self.draw), strict=True)
        for number, (parameter, gradient) in enumerate(pairs):
            left_out = number in without or not parameter.requires_grad
            parameter.grad = None if left_out else gradient

    def row(self) -> np.ndarray:
        """Return all parameters in a row."""
        rows = [p.detach().cpu().flatten() for p in self.parameters]
        return torch.cat(rows).numpy()


def tensor_bytes() -> int:
    """Return the bytes of all tensors of this process, wherever it keeps them."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            storage = thing.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def warm_up() -> None:
    """Do once what makes torch load more of itself, so that it is not counted."""
    parameter = nn.Parameter(torch.zeros(8))
    for inner in INNER.values():
        parameter.grad = torch.ones_like(parameter)
        optimizer = inner([parameter], lr=0.1)
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    dist.broadcast(parameter.data, src=0)
    dist.all_gather([torch.empty_like(parameter)] * dist.get_world_size(), parameter)


def pieces(state_dict: dict) -> dict[str, Any]:
    """Take a whole state apart: its numbers, their names, its groups."""
    given: dict[str, Any] = {}
    names = []
    for number, state in state_dict["state"].items():
        for name, value in state.items():
            names.append([int(number), name])
            given[f"{int(number)}:{name}"] = torch.as_tensor(value).cpu().numpy()
    return given | {"names": names, "saved_groups": state_dict["param_groups"]}


def put_together(given: dict) -> dict:
    """Make a whole state of its `pieces`."""
    state: dict[int, dict] = {}
    for number, name in given["names"]:
        value = torch.from_numpy(given[f"{number}:{name}"].copy())
        state.setdefault(number, {})[name] = value
    return {"state": state, "param_groups": given["saved_groups"]}


def main() -> None:
    """Inputs: shapes of the parameters and their dtype; inner, the name of a class, and
    its options; groups, each with the numbers of its params, its own options and the
    step `at` which it comes; frozen numbers; by step, the numbers `without` a gradient;
    by step, the changes of options [group, name, value]; gamma of a scheduler; steps;
    the seed that all have in common; weigh, after which step memory is measured, or 0;
    a checkpoint, or none; save, whether one is asked for.
    """
    from ranks import answer, give, give_back_at_once, inputs, weigh
    from wire import wired

    give_back_at_once()
    given = inputs()
    with wired(given) as line:
        if line is None:
            return  # this was the machine

        def draw(count: int, kind: type) -> np.ndarray:
            told = line.ask("draw", [count, np.dtype(kind).name])
            return np.frombuffer(bytearray(told), kind)

        training = Training(given, draw)
        if given["weigh"]:
            warm_up()
            weigh(tensors=tensor_bytes())
        program = answer("shard.py", library=LIBRARY)
        if given["weigh"]:
            weigh(tensors=tensor_bytes())
        arguments = training.groups(0), INNER[given["inner"]]
        line.ask("meet")
        optimizer = program.ShardedOptimizer(*arguments, **given["options"])
        if "names" in given:
            optimizer.load_state_dict(put_together(given))
        rows: list[np.ndarray] = []
        left = given["weigh"]  # no enumerate: it would keep a row until the next one
        for row in training.take(optimizer):
            rows, left = [row] if given["weigh"] else [*rows, row], left - 1
            if not left:
                del row
                rows.clear()
                for parameter in training.parameters:
                    parameter.grad = None
                line.ask("meet")  # so the line's thread has let go of what came before
                weigh(tensors=tensor_bytes())
        line.ask("meet")
        give(params=np.array(rows))
        if given["save"]:
            whole = optimizer.state_dict()
            if dist.get_rank() == 0:
                give(**pieces(whole))


if __name__ == "__main__":
    main()
