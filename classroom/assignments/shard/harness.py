"""Takes steps with the student's ShardedOptimizer, and tells what came of them.

There is no network: gradients are drawn, and every rank has its own, as it has its own
parameters to begin with. So the judge, who takes the same steps unsharded once for each
rank, can tell from a number alone which rank has made it: the owner of its state.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

INNER = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}
LIBRARY = "torch.distributed.optim torch.distributed.fsdp torch.distributed._composable"


class Training:
    """The parameters of one rank, its gradients, and the steps taken with them; the
    seeds are taken out of what is given.
    """

    def __init__(self, given: dict):
        self.given, self.parameters = given, list[nn.Parameter]()
        self.draw, common = (
            np.random.default_rng(given.pop(seed)) for seed in ("seed", "common")
        )
        both = zip(self.drawn(self.draw), self.drawn(common), strict=True)
        for number, (mine, same) in enumerate(both):
            # Who has no gradient in its first step is sent or not, as you like.
            parameter = nn.Parameter(same if self.waits(number) else mine)
            parameter.requires_grad_(number not in given["frozen"])
            self.parameters.append(parameter)

    def drawn(self, draw: np.random.Generator) -> Iterator[torch.Tensor]:
        """Draw numbers for all parameters; return them in their shapes."""
        kind = np.dtype(self.given["dtype"]).type
        for shape in self.given["shapes"]:
            numbers = draw.standard_normal(math.prod(shape), kind)
            yield torch.from_numpy(numbers).view(shape)

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
            self.put_gradients(step)
            optimizer.step()
            if scheduler:
                scheduler.step()
            yield self.row()

    def put_gradients(self, step: int) -> None:
        """Give new gradients to all parameters but those without one in this step."""
        pairs = zip(self.parameters, self.drawn(self.draw), strict=True)
        for number, (parameter, gradient) in enumerate(pairs):
            gradient *= [step, number] not in self.given["zeros"]
            left_out = number in self.given["without"][step]
            trained = parameter.requires_grad and not left_out
            parameter.grad = gradient if trained else None

    def row(self) -> np.ndarray:
        """Return all parameters in a row."""
        rows = [p.detach().cpu().flatten() for p in self.parameters]
        return torch.cat(rows).numpy()


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


def made_up(optimizer: torch.optim.Optimizer) -> dict:
    """Return a whole state of AdamW, the same on all ranks, as after one step."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            mean, square = torch.full_like(p, 0.5), torch.ones_like(p)
            state = {"step": torch.tensor(1.0), "exp_avg": mean, "exp_avg_sq": square}
            optimizer.state[p] = state
    return optimizer.state_dict()


def main() -> None:
    """Inputs: shapes of the parameters and their dtype; inner, the name of a class, and
    its options; groups, each with the numbers of its params, its own options and the
    step `at` which it comes; plain, whether the only group comes as its parameters
    alone; frozen numbers; by step, the numbers `without` a gradient; zeros, [step,
    number] where it is zeros; by step, the changes of options [group, name, value];
    gamma of a scheduler; steps; the seed of this rank, and one that all have in common;
    a checkpoint, or none; save, whether one is asked for; weigh, whether memory is
    measured before there is an optimizer and after two steps; resume, whether it has
    loaded and saved a state then.
    """
    from ranks import answer, give, give_back_at_once, inputs, weigh
    from tensors import tensor_bytes
    from wire import wired

    give_back_at_once()
    given = inputs()
    with wired(given) as line:
        if line is None:
            return  # this was the machine
        training = Training(given)
        if given["weigh"]:
            warm_up()
        program = answer("shard.py", library=LIBRARY)
        line.ask("meet")
        if given["weigh"]:
            weigh(tensors=tensor_bytes())
        inner, options = INNER[given["inner"]], given["options"]
        begun: Any = training.groups(0)
        if given["plain"]:
            begun = iter(begun[0]["params"])  # as model.parameters() are: once
        optimizer = program.ShardedOptimizer(begun, inner, **options)
        if "names" in given:
            optimizer.load_state_dict(put_together(given))
        if given["resume"]:
            optimizer.load_state_dict(made_up(inner(training.groups(0), **options)))
        steps = training.take(optimizer)
        if given["weigh"]:
            next(steps)
            if given["resume"]:
                optimizer.state_dict()  # and nobody keeps what it returns
            next(steps)
            for parameter in training.parameters:
                parameter.grad = None
            line.ask("meet")  # so the line's thread has let go of what came before
            weigh(tensors=tensor_bytes())
        give(params=np.array([*steps]))
        if given["save"]:
            optimizer.state_dict()  # to be asked changes nothing
            whole = optimizer.state_dict()
            if dist.get_rank() == 0:
                give(**pieces(whole))


if __name__ == "__main__":
    main()
