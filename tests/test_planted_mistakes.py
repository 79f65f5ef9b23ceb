"""Mistakes that people make, each put into a program: none may go unnoticed.

A program that keeps quiet with one of these in it teaches nothing, so this file is the
proof that the checks in the programs can fail.
"""

from dataclasses import dataclass

import pytest

from ddp_lab.kit import ROOT, torchrun, variant
from ddp_lab.kit.data import prepare


@dataclass(frozen=True)
class Mistake:
    """One change to one program, after which a run must fail."""

    name: str
    program: str
    old: str
    new: str
    ranks: int = 2
    arguments: str = ""


# A short training, on CIFAR-10 or its stand-in.
CIFAR10 = (
    "--data {data} --checkpoint {tmp} --epochs 2 --train-images 256 --test-images 101"
)

# An even number of tests: then a share that is tested twice does not show in the sum.
CIFAR10_FAST = (
    "--data {data} --epochs 2 --train-images 256 --test-images 100 --batch 32"
)

MISTAKES = [
    Mistake(
        "shares that overlap",
        "start_here",
        "numbers[rank::world_size]",
        "numbers[rank:]",
    ),
    Mistake(
        "all_reduce on one rank only",
        "start_here",
        "    dist.all_reduce(total)",
        "    if rank == 0:\n        dist.all_reduce(total)",
    ),
    Mistake(
        "send another's number",
        "p2p_send_recv",
        "base + other for",
        "base + other - 1 for",
    ),
    Mistake(
        "forget to wait",
        "p2p_isend_irecv",
        "    work.wait()  # only now this rank",
        "    # only now this rank",
    ),
    Mistake(
        "everybody sends first",
        "p2p_exchange",
        "if dist.get_rank() % 2 == 0:",
        "if True:",
        ranks=3,
    ),
    Mistake(
        "exchange with the wrong neighbour",
        "p2p_exchange",
        "(rank + 1) % world_size",
        "(rank + 2) % world_size",
        ranks=3,
    ),
    Mistake(
        "do not add to the token",
        "p2p_ring",
        "dist.send(token + rank, dst=right)",
        "dist.send(token, dst=right)",
    ),
    Mistake(
        "send to the wrong neighbour",
        "p2p_ring",
        "(rank - 1) % world_size, (rank + 1) % world_size",
        "(rank + 1) % world_size, (rank - 1) % world_size",
        ranks=3,
    ),
    Mistake(
        "another operator",
        "collectives_rooted",
        "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.SUM)",
        "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.MAX)",
    ),
    Mistake(
        "broadcast on one rank only",
        "collectives_rooted",
        "    dist.broadcast(buf, src=ROOT)",
        "    if rank == ROOT:\n        dist.broadcast(buf, src=ROOT)",
    ),
    Mistake(
        "reduce on one rank only",
        "collectives_all",
        "    dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
        "    if rank == 0:\n        dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
    ),
    Mistake("no barrier", "collectives_all", "    dist.barrier()\n", "", ranks=4),
    Mistake(
        "the operator is not passed on",
        "collectives_reduce_ops",
        "dist.all_reduce(buf, op=op)",
        "dist.all_reduce(buf)",
    ),
    Mistake(
        "the group is not passed on",
        "collectives_groups",
        "op=dist.ReduceOp.SUM, group=group)",
        "op=dist.ReduceOp.SUM)",
    ),
    Mistake(
        "a place in the group taken for a rank",
        "collectives_groups",
        "src=ranks[0], group=group",
        "group_src=ranks[0], group=group",
        ranks=4,
    ),
    Mistake(
        "cut up in the wrong order",
        "collectives_list",
        "[glued.chunk(len(tensors)) for glued in recv_buf.chunk(world_size)]",
        "[glued.chunk(world_size) for glued in recv_buf.chunk(len(tensors))]",
    ),
    Mistake(
        "speak in the wrong order",
        "collectives_list",
        "if turn == rank:",
        "if turn == world_size - 1 - rank:",
    ),
    Mistake(
        "forget the division by the world size",
        "collectives_averaging",
        "            weight /= world_size\n",
        "",
    ),
    Mistake(
        "forget the division by the world size",
        "ddp_by_hand",
        "parameter.grad /= dist.get_world_size()",
        "parameter.grad /= 1",
    ),
    Mistake(
        "reduce on one rank only",
        "ddp_by_hand",
        "dist.all_reduce(parameter.grad)",
        "dist.reduce(parameter.grad, dst=0)",
    ),
    Mistake(
        "average after the step",
        "ddp_by_hand",
        "    average_gradients(model)\n    optimizer.step()\n",
        "    optimizer.step()\n    average_gradients(model)\n",
    ),
    Mistake(
        "do not share the weights",
        "ddp_by_hand",
        "        share_weights(model)\n",
        "",
    ),
    Mistake(
        "no DDP",
        "ddp_basics",
        "        model = DDP(model)  # every rank now holds rank 0's weights\n",
        "",
    ),
    Mistake(
        "the same shard everywhere",
        "ddp_basics",
        "x[rank::world_size], y[rank::world_size]",
        "x[0::world_size], y[0::world_size]",
    ),
    Mistake(
        "no zero_grad",
        "ddp_single",
        "    optimizer.zero_grad()\n",
        "",
    ),
    Mistake(
        "drop set_epoch",
        "ddp_shards",
        "        sampler.set_epoch(epoch)  # without it all epochs repeat epoch 0\n",
        "",
    ),
    Mistake(
        "count the padding",
        "ddp_shards",
        "turn * world_size + rank < TESTED",
        "True",
    ),
    Mistake(
        "never synchronise",
        "ddp_no_sync",
        "if turn < MICRO - 1 else nullcontext():\n            loss = model",
        "if True else nullcontext():\n            loss = model",
    ),
    Mistake(
        "train past DDP",
        "ddp_straggler",
        "loss = model(batch)",
        "loss = model.module(batch)",
        ranks=3,
    ),
    Mistake(
        "no DDP",
        "ddp_data_parallel",
        "ddp_model = DDP(make_model(device))",
        "ddp_model = make_model(device)",
    ),
    Mistake(
        "no autocast",
        "ddp_amp",
        "y[rank::world_size], autocast=True",
        "y[rank::world_size], autocast=False",
    ),
    Mistake(
        "leave the optimizer out of the checkpoint",
        "checkpoint_resume",
        'KEPT = "model", "optimizer", "scheduler"',
        'KEPT = "model", "scheduler"',
    ),
    Mistake(
        "leave the scheduler out of the checkpoint",
        "checkpoint_resume",
        'KEPT = "model", "optimizer", "scheduler"',
        'KEPT = "model", "optimizer"',
    ),
    Mistake(
        "one random state for all ranks",
        "checkpoint_resume",
        'saved["rng"][rank]',
        'saved["rng"][0]',
    ),
    Mistake(
        "forget the place in the epoch",
        "checkpoint_resume",
        '"batch": step % BATCHES',
        '"batch": 0',
    ),
    Mistake(
        "no barrier after the save",
        "checkpoint_basics",
        "    dist.barrier()  # nobody goes on before the file is whole\n",
        "",
    ),
    Mistake(
        "save the wrapped model",
        "checkpoint_basics",
        '"model": ddp.module.state_dict()}',
        '"model": ddp.state_dict()}',
    ),
    Mistake(
        "write in place",
        "checkpoint_atomic",
        'with open(path.with_suffix(".tmp"), "wb") as file:',
        'with open(path, "wb") as file:',
    ),
    Mistake(
        "load the model only",
        "checkpoint_dcp",
        "dcp.load(state, checkpoint_id=folder)",
        'dcp.load({"model": model_state}, checkpoint_id=folder)',
    ),
    Mistake(
        "a forgotten .to()",
        "model_split",
        "self.second(hidden.to(self.dev1))",
        "self.second(hidden)",
    ),
    Mistake(
        "train past DDP",
        "model_split",
        "train_step(ddp, x[rows], target[rows])",
        "train_step(ddp.module, x[rows], target[rows])",
    ),
    Mistake(
        "ignore the gradient from the right",
        "model_stages",
        "out.backward(grad.to(self.device))",
        "out.sum().backward()",
    ),
    Mistake(
        "no requires_grad_ on what arrives",
        "model_stages",
        "x = recv_buf.to(self.device).requires_grad_()",
        "x = recv_buf.to(self.device)",
    ),
    Mistake(
        "forget that micro-batches are averaged",
        "model_pipeline",
        "nn.functional.mse_loss(out, target) / m,",
        "nn.functional.mse_loss(out, target),",
    ),
    Mistake(
        "forget the sum on the way back",
        "model_tensor",
        'x = SumOverRanks.apply(x, "backward")',
        "x = x.clone()",
    ),
    Mistake(
        "forget the sum on the way forward",
        "model_tensor",
        'y = SumOverRanks.apply(F.linear(x, weight), "forward")',
        "y = F.linear(x, weight)",
    ),
    Mistake(
        "two column cuts in a row",
        "model_builtin",
        '"2": RowwiseParallel()',
        '"2": ColwiseParallel()',
    ),
    Mistake(
        "drop set_epoch",
        "cifar10_resnet",
        "sampler.set_epoch(epoch)",
        "sampler.set_epoch(0)",
        arguments=CIFAR10,
    ),
    Mistake(
        "evaluate the wrapped model on rank 0",
        "cifar10_resnet",
        "counts = evaluate(model, test_set, rank, world_size, args.batch, device)",
        "counts = torch.ones(2, 10)\n            if rank == 0:\n                "
        "counts = evaluate(ddp, test_set, 0, 1, args.batch, device)",
        arguments=CIFAR10,
    ),
    Mistake(
        "count padded images twice",
        "cifar10_resnet",
        "images[:left].to(device), labels[:left].to(device)",
        "images.to(device), labels.to(device)",
        arguments=CIFAR10,
    ),
    Mistake(
        "one seed for all noise",
        "cifar10_resnet",
        "torch.manual_seed(rank)",
        "torch.manual_seed(0)",
        arguments=CIFAR10,
    ),
    Mistake(
        "every rank trains on all images",
        "cifar10_resnet",
        "DistributedSampler(train_set, drop_last=True)",
        "DistributedSampler(train_set, 1, 0)",
        arguments=CIFAR10,
    ),
    Mistake(
        "one crop for the whole batch",
        "cifar10_fast",
        "(2, n), device=device)",
        "(2, 1), device=device)",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "the same order in every epoch",
        "cifar10_fast",
        "manual_seed(epoch)",
        "manual_seed(0)",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "every rank takes the same share",
        "cifar10_fast",
        "order[:whole][rank::world_size]",
        "order[:whole][0::world_size]",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "every rank tests the same share",
        "cifar10_fast",
        "torch.arange(rank, len(labels), world_size)",
        "torch.arange(0, len(labels), world_size)",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "one seed for all noise",
        "cifar10_fast",
        "torch.manual_seed(rank)",
        "torch.manual_seed(0)",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "no DDP",
        "cifar10_fast",
        "nn.parallel.DistributedDataParallel(model)",
        "model",
        arguments=CIFAR10_FAST,
    ),
    Mistake(
        "never synchronise",
        "cifar10_settings",
        "with model.no_sync() if silent else",
        "with model.no_sync() if True else",
        arguments="--rounds 1",
    ),
    Mistake(
        "exchange before all is summed up",
        "cifar10_settings",
        "number < len(batches)",
        "number > 1",
        arguments="--rounds 1",
    ),
]


@pytest.mark.parametrize(
    "mistake", MISTAKES, ids=lambda mistake: f"{mistake.program}: {mistake.name}"
)
def test_the_mistake_is_caught(mistake, tmp_path):
    path = variant(f"ddp_lab/{mistake.program}.py", mistake.old, mistake.new)
    arguments = mistake.arguments
    if "{data}" in arguments:
        data = prepare().root
        arguments = arguments.format(data=data, tmp=tmp_path / "checkpoint.pt")
    command = f"--nproc-per-node {mistake.ranks} {path} {arguments}"
    run = torchrun(command, timeout=20, expect_failure=True)
    assert run.failure.kind in ("exception", "timeout"), run.failure.report()


def test_every_program_has_a_planted_mistake():
    programs = {path.stem for path in (ROOT / "ddp_lab").glob("[!_]*.py")}
    programs -= {name for name in programs if name.startswith("clinic_")}  # sick
    exercises = {name for name in programs if name.endswith("_exercise")}
    # ddp_spawn.py runs under plain python, and test_programs.py breaks it.
    unplanted = {"ddp_spawn"}
    assert programs - exercises - unplanted == {m.program for m in MISTAKES}
