"""Mistakes that people make, each put into a program: none may go unnoticed.

A program that keeps quiet with one of these in it teaches nothing, so this file is the
proof that the checks in the programs can fail.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import PROGRAMS, RESTARTS, name_of, smaller
from ranks import launch, tell_apart

from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun, variant

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Mistake:
    """One change to one program, after which a run must fail."""

    name: str
    program: str
    old: str
    new: str
    ranks: int = 2  # on each node
    arguments: str = ""
    nodes: int = 1


# A short training, on CIFAR-10 or its stand-in.
CIFAR10 = "--data {data} --epochs 2 --train-images 256 --test-images 101 --batch 16"

MISTAKES = [
    Mistake(
        "call every rank of a node the first one",
        "nodes/from_slurm",
        'local_rank = int(told.get("LOCAL_RANK", rank))',
        "local_rank = 0",
    ),
    Mistake(
        "shares that overlap",
        "start/hello",
        "numbers[rank::world_size]",
        "numbers[rank:]",
    ),
    Mistake(
        "all_reduce on one rank only",
        "start/hello",
        "    dist.all_reduce(total)",
        "    if rank == 0:\n        dist.all_reduce(total)",
    ),
    Mistake(
        "work before joining",
        "start/join",
        "    dist.init_process_group(",
        "    work(device)\n    dist.init_process_group(",
    ),
    Mistake(
        "send another's number",
        "p2p/send_recv",
        "base + other for",
        "base + other - 1 for",
    ),
    Mistake(
        "everybody sends first",
        "p2p/exchange",
        "if dist.get_rank() % 2 == 0:",
        "if True:",
        ranks=3,
    ),
    Mistake(
        "exchange with the wrong neighbor",
        "p2p/exchange",
        "(rank + 1) % world_size",
        "(rank + 2) % world_size",
        ranks=3,
    ),
    Mistake(
        "do not add to the token",
        "p2p/ring",
        "dist.send(token + rank, dst=right)",
        "dist.send(token, dst=right)",
    ),
    Mistake(
        "send to the wrong neighbor",
        "p2p/ring",
        "(rank - 1) % world_size, (rank + 1) % world_size",
        "(rank + 1) % world_size, (rank - 1) % world_size",
        ranks=3,
    ),
    Mistake(
        "another operator",
        "collectives/rooted",
        "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.SUM)",
        "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.MAX)",
    ),
    Mistake(
        "broadcast on one rank only",
        "collectives/rooted",
        "    dist.broadcast(buf, src=ROOT)",
        "    if rank == ROOT:\n        dist.broadcast(buf, src=ROOT)",
    ),
    Mistake(
        "reduce on one rank only",
        "collectives/all",
        "    dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
        "    if rank == 0:\n        dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
    ),
    Mistake(
        "another operator",
        "collectives/all",
        "dist.reduce_scatter_tensor(recv_buf, row, op=dist.ReduceOp.SUM)",
        "dist.reduce_scatter_tensor(recv_buf, row, op=dist.ReduceOp.MAX)",
    ),
    Mistake(
        "the late one leaves no note",
        "collectives/late",
        'store.set(key, "here I come")',
        "store.set('', '')",
    ),
    Mistake(
        "each adds up alone",
        "collectives/late",
        "dist.all_reduce(many)",
        "many.add_(0)",
    ),
    Mistake(
        "the operator is not passed on",
        "collectives/reduce_ops",
        "dist.all_reduce(buf, op=made.get(name) or getattr(dist.ReduceOp, name))",
        "dist.all_reduce(buf)",
    ),
    Mistake(
        "the group is not passed on",
        "collectives/groups",
        "op=dist.ReduceOp.SUM, group=group)",
        "op=dist.ReduceOp.SUM)",
    ),
    Mistake(
        "a place in the group taken for a rank",
        "collectives/groups",
        "src=ranks[0], group=group",
        "group_src=ranks[0], group=group",
        ranks=4,
    ),
    Mistake(
        "cut up in the wrong order",
        "collectives/list",
        "[glued.chunk(len(tensors)) for glued in recv_buf.chunk(world_size)]",
        "[glued.chunk(world_size) for glued in recv_buf.chunk(len(tensors))]",
    ),
    Mistake(
        "each gathers its own",
        "collectives/list",
        "dist.all_gather(copies, tensor)",
        "copies = [tensor] * world_size",
    ),
    Mistake(
        "forget the division by the world size",
        "collectives/averaging",
        "    weight /= dist.get_world_size()  # without this the weights would grow\n",
        "",
    ),
    Mistake(
        "forget the division by the world size",
        "ddp/by_hand",
        "parameter.grad /= dist.get_world_size()",
        "parameter.grad /= 1",
    ),
    Mistake(
        "do not share the weights",
        "ddp/by_hand",
        "    share_weights(model)\n",
        "",
    ),
    Mistake(
        "no DDP",
        "ddp/basics",
        "    model = DDP(model)  # every rank now holds rank 0's weights\n",
        "",
    ),
    Mistake(
        "the same shard everywhere",
        "ddp/basics",
        "x[rank::world_size], y[rank::world_size]",
        "x[0::world_size], y[0::world_size]",
    ),
    Mistake(
        "never synchronise",
        "practice/no_sync",
        "if turn < MICRO - 1 else nullcontext():\n            loss = model",
        "if True else nullcontext():\n            loss = model",
    ),
    Mistake(
        "do not divide by the number of micro-batches",
        "practice/no_sync",
        "nullcontext():\n            loss = model(sample).mean() / MICRO",
        "nullcontext():\n            loss = model(sample).mean()",
    ),
    Mistake(
        "the gradients are scaled and never unscaled",
        "practice/fp16",
        "    scaler.unscale_(optimizer)",
        "    #",
    ),
    Mistake(
        "forget the scale",
        "practice/fp16",
        "scaler.scale(loss).backward()",
        "loss.backward()",
    ),
    Mistake(
        "skip the step alone",
        "practice/skip",
        "    dist.all_reduce(failed, dist.ReduceOp.MAX)",
        "    #",
    ),
    Mistake(
        "skip only if all have failed",
        "practice/skip",
        "dist.ReduceOp.MAX",
        "dist.ReduceOp.MIN",
    ),
    Mistake(
        "train past DDP",
        "practice/straggler",
        "loss = model(batch)",
        "loss = model.module(batch)",
        ranks=3,
    ),
    Mistake(
        "the ranks of a tensor group work on different samples",
        "scale/three_d",
        "tokens.chunk(turns)[turn] for",
        "tokens.chunk(2)[dist.get_rank() % 2] for",
        ranks=4,
    ),
    Mistake(
        "each stage clips by itself",
        "scale/three_d",
        "    dist.all_reduce(square, group=pipeline)  #",
        "    #",
    ),
    Mistake(
        "the norms are left out of the plan",
        "scale/three_d",
        '        "blocks.*.norm1": SequenceParallel(),\n',
        "",
        ranks=4,
    ),
    Mistake(
        "owe nothing",
        "less/top_k",
        "total = bucket.buffer() + owed[index]",
        "total = bucket.buffer()",
    ),
    Mistake(
        "each rank takes its own choice only",
        "less/top_k",
        "zip(places, numbers, strict=True)",
        "[(largest, total[largest])]",
    ),
    Mistake(
        "top-k that owes nothing",
        "less/hooks",
        "total = bucket.buffer() + owed[index]",
        "total = bucket.buffer()",
    ),
    Mistake(
        "each rank adds its own choice only",
        "less/hooks",
        "zip(places, numbers, strict=True)",
        "[(largest, total[largest])]",
    ),
    Mistake(
        "go on from one's own weights",
        "less/rarely",
        "        vector_to_parameters(self.common.data.clone(), ddp.parameters())\n",
        "",
    ),
    Mistake(
        "the sum of the ways for their mean",
        "less/rarely",
        "mean, length = way / dist.get_world_size(), way",
        "mean, length = way, way",
    ),
    Mistake(
        "one seed for the workers of all ranks",
        "practice/seeds",
        '"a seed each": (rank, None)',
        '"a seed each": (0, None)',
    ),
    Mistake(
        "each rank shuffles its own way",
        "practice/seeds",
        "DistributedSampler(samples)",
        "DistributedSampler(samples, seed=dist.get_rank())",
    ),
    Mistake(
        "earlier tiles are not scaled down",
        "long/ring",
        "shrink = (self.largest - largest).exp()",
        "shrink = 1.0",
    ),
    Mistake(
        "the tiles that are hidden are taken for the others",
        "long/ring",
        "if other <= piece:",
        "if other >= piece:",
    ),
    Mistake(
        "within a piece, a query sees keys that come later",
        "long/zigzag",
        "diagonal=other == piece",
        "diagonal=False",
    ),
    Mistake(
        "an exchange whose backward is the same way",
        "long/ulysses",
        "ctx.way = join, cut",
        "ctx.way = cut, join",
    ),
    Mistake(
        "each rank's positions begin at 0",
        "long/ulysses",
        "at[0] + dist.get_rank() * len(at[0])",
        "at[0]",
    ),
    Mistake(
        "experts of different ranks share a gradient",
        "long/experts",
        'if "experts." not in name:',
        "if True:",
    ),
    Mistake(
        "an expert's gradient is the sum, not the mean over the ranks",
        "long/experts",
        "        p.grad /= dist.get_world_size()",
        '        p.grad /= 1 if "experts." in name else dist.get_world_size()',
    ),
    Mistake(
        "a loss of counts, which have no gradient",
        "long/balance",
        "EXPERTS * (share * probs.mean(0)).sum()",
        "EXPERTS * (share * share + 0 * probs.mean(0)).sum()",
    ),
    Mistake(
        "the balance loss is subtracted",
        "long/balance",
        "+ alpha * layer.balance",
        "- alpha * layer.balance",
    ),
    Mistake(
        "no rank waits for what the others' experts return",
        "long/slow",
        "        back = Exchange.apply(out[order.argsort()], comes, sends)",
        "        back = rows.clone()",
    ),
    Mistake(
        "share the weights of another rank",
        "inside/each",
        "dist.broadcast(tensor.detach(), src=0)",
        "dist.broadcast(tensor.detach(), src=1)",
    ),
    Mistake(
        "sum instead of the mean",
        "inside/each",
        "            weight.grad /= dist.get_world_size()\n",
        "",
    ),
    Mistake(
        "pieces in another order",
        "inside/flat",
        "zip(self.weights, pieces, strict=True)",
        "zip(self.weights, reversed(pieces), strict=True)",
    ),
    Mistake(
        "send one gradient twice",
        "inside/flat",
        "        dist.all_reduce(flat)",
        "        dist.all_reduce(flat[:1].clone())\n        dist.all_reduce(flat)",
    ),
    Mistake(
        "do not wait for the last gradient",
        "inside/hooks",
        "for work in self.works:",
        "for work in self.works[:-1]:",
    ),
    Mistake(
        "a hook before the gradient is added up",
        "inside/hooks",
        "weight.register_post_accumulate_grad_hook(self.ready)",
        "weight.register_hook(lambda _, w=weight: self.ready(w))",
    ),
    Mistake(
        "buckets that stay full after the first step",
        "inside/buckets",
        "        self.works, self.made = [], set()",
        "        self.works = []",
    ),
    Mistake(
        "buckets twice as large as torch's",
        "inside/buckets",
        "cap=2**20",
        "cap=2**21",
    ),
    Mistake(
        "send when backward() is over",
        "inside/overlap",
        "            if not weights <= self.made:\n",
        "            if len(self.made) < len(self.weights):\n",
    ),
    Mistake(
        "send every micro-batch",
        "inside/no_sync",
        "        self.syncs = False\n",
        "        self.syncs = True\n",
    ),
    Mistake(
        "stay silent after no_sync()",
        "inside/no_sync",
        "            self.syncs = True",
        "            pass",
    ),
    Mistake(
        "a gradient for what no rank has used",
        "inside/graph",
        "weight.grad = weight.grad if ranks else None",
        "weight.grad = weight.grad",
    ),
    Mistake(
        "an evaluation that sends",
        "inside/graph",
        "if not torch.is_grad_enabled():",
        "if False:",
    ),
    Mistake(
        "no gradient for what only another rank has used",
        "inside/graph",
        "        dist.all_reduce(votes)",
        "        dist.all_reduce(votes.clone())",
    ),
    Mistake(
        "the mean over all ranks to the end",
        "inside/join",
        "flat /= max(self.voters, 1)",
        "flat /= dist.get_world_size()",
    ),
    Mistake(
        "stop when the own batches end",
        "inside/join",
        "        if not model.voters:",
        "        if batch is None:",
    ),
    Mistake(
        "buffers of each rank",
        "inside/norm",
        "            dist.broadcast(buffer, src=0)",
        "            buffer.add_(0)",
    ),
    Mistake(
        "a mean over the own rows in backward",
        "inside/norm",
        "        dist.all_reduce(sums)  # each sample has moved the mean for all\n",
        "        sums *= dist.get_world_size()\n",
    ),
    Mistake(
        "a graph that DDP does not cut",
        "inside/beyond",
        "torch._dynamo.config.optimize_ddp = splits",
        "torch._dynamo.config.optimize_ddp = False",
    ),
    Mistake(
        "another size of the buckets",
        "inside/beyond",
        '"default": {},',
        '"default": {"bucket_cap_mb": 1},',
    ),
    Mistake(
        "outliers count more than all others",
        "cost/line",
        "weight = ((rows @ line)[:, 0] - 1).abs().clamp(min=1e-3).rsqrt()",
        "weight = ((rows @ line)[:, 0] - 1).abs().clamp(min=1e-3).sqrt()",
    ),
    Mistake(
        "a rank looks at the part that it had before",
        "cost/line",
        "return whole[-len(part) :], world_size",
        "return part, world_size",
    ),
    Mistake(
        "a ring that sends on what it has not received",
        "cost/ways",
        "(r - s) % n, (r - s) % n + 1)",
        "(r + s) % n, (r + s) % n + 1)",
        ranks=3,
    ),
    Mistake(
        "on the way back, sums are added again",
        "cost/ways",
        "[Message(b, a, i, j, False) for",
        "[Message(b, a, i, j) for",
    ),
    Mistake(
        "what comes back stays in the room for sums",
        "cost/ways",
        "into = room[span] if adds else buffer[span]",
        "into = room[span]",
    ),
    Mistake(
        "one bucket for all layers",
        "cost/step",
        "bucket_cap_mb=1)",
        "bucket_cap_mb=25)",
    ),
    Mistake(
        "each rank keeps its own gradient",
        "cost/step",
        "return allreduce_hook(None, bucket)",
        "return (own := torch.futures.Future()).set_result(bucket.buffer()) or own",
    ),
    Mistake(
        "the profiler is not told where a step ends",
        "profiling/traced",
        "            prof.step()  # a step of the trace ends here\n",
        "",
    ),
    Mistake(
        "the model is not wrapped",
        "profiling/traced",
        "model = DDP(network().to(device))  # waits for rank 0",
        "model = network().to(device)",
    ),
    Mistake(
        "too few batches for the schedule",
        "profiling/workers",
        "BATCH * STEPS * world_size)",
        "BATCH * (STEPS - 4) * world_size)",
    ),
    Mistake(
        "no gradient is averaged",
        "profiling/buckets",
        "model = DDP(network().to(device), bucket_cap_mb=cap)",
        "model = network().to(device)",
    ),
    Mistake(
        "the optimizer is not fused",
        "profiling/small",
        '{"fused": True}',
        '{"foreach": False}',
    ),
    Mistake(
        "split by worker only",
        "profiling/stream",
        "first = self.rank * workers + number",
        "first = number",
    ),
    Mistake(
        "split by rank only",
        "profiling/stream",
        "first = self.rank * workers + number",
        "first = self.rank * workers",
    ),
    Mistake(
        "leave the optimizer out of the checkpoint",
        "checkpoint/resume",
        'KEPT = "model", "optimizer", "scheduler"',
        'KEPT = "model", "scheduler"',
    ),
    Mistake(
        "one random state for all ranks",
        "checkpoint/resume",
        'saved["rng"][rank]',
        'saved["rng"][0]',
    ),
    Mistake(
        "no barrier after the save",
        "checkpoint/basics",
        "    dist.barrier()  # no rank goes on before the file is whole\n",
        "",
    ),
    Mistake(
        "replace the file before all of it is written",
        "checkpoint/durable",
        "            torch.save(saved, file)\n",
        "            file.write(b'half of it')\n",
    ),
    Mistake(
        "save the wrapped model",
        "checkpoint/basics",
        '"model": ddp.module.state_dict()}',
        '"model": ddp.state_dict()}',
    ),
    Mistake(
        "write all steps into one folder",
        "checkpoint/same_folder",
        'save_twice(folder / "1", folder / "2", mesh)',
        'save_twice(folder / "1", folder / "1", mesh)',
    ),
    Mistake(
        "take the newest folder, complete or not",
        "checkpoint/same_folder",
        '[file.parent for file in sorted(folder.glob("*/.metadata"))]',
        "sorted(folder.iterdir())",
    ),
    Mistake(
        "a temporary file for each writer",
        "checkpoint/writers",
        'path.with_suffix(".tmp")',
        'path.with_suffix(f".{dist.get_rank()}")',
    ),
    Mistake(
        "save before the step",
        "checkpoint/resume",
        "save(parts, step + 1, random, path)",
        "save(parts, step, random, path)",
    ),
    Mistake(
        "write what training is changing",
        "checkpoint/async_save",
        "save_and_go_on(dcp.async_save, folder, mesh)",
        "save_in_a_thread(folder, mesh)",
    ),
    Mistake(
        "load the model only",
        "checkpoint/dcp",
        "    dcp.load(state, checkpoint_id=folder)  # fills",
        '    dcp.load({"model": state["model"]}, checkpoint_id=folder)  #',
    ),
    Mistake(
        "a forgotten .to()",
        "model/split",
        "self.second(hidden.to(self.dev1))",
        "self.second(hidden)",
    ),
    Mistake(
        "train past DDP",
        "model/split",
        "take_step(ddp, x, target)",
        "take_step(ddp.module, x, target)",
    ),
    Mistake(
        "all samples on every rank",
        "model/budget",
        "budget(ddp, x[rank::world_size])",
        "budget(ddp, x)",
    ),
    Mistake(
        "count the weights twice",
        "model/budget",
        "if storage.data_ptr() not in own:",
        "if True:",
    ),
    Mistake(
        "DDP leaves the buffers alone",
        "cifar10/buffers",
        "DistributedDataParallel(model)",
        "DistributedDataParallel(model, broadcast_buffers=False)",
    ),
    Mistake(
        "rank 0 tests alone",
        "cifar10/buffers",
        "        forward(name, ddp, images)\n        found",
        '        if rank == 0 or name[:5] == "train":\n'
        "            forward(name, ddp, images)\n        found",
    ),
    Mistake(
        "every rank takes the same share",
        "cifar10/resnet",
        "DistributedSampler(range(len(images[1])), drop_last=True)",
        "DistributedSampler(range(len(images[1])), world_size, 0, drop_last=True)",
        arguments=CIFAR10,
    ),
    Mistake(
        "noise of the rank, not of the image",
        "cifar10/resnet",
        "manual_seed(epoch)",
        "manual_seed(dist.get_rank())",
        arguments=CIFAR10,
    ),
    Mistake(
        "every rank tests the same images",
        "cifar10/resnet",
        "torch.arange(rank, len(labels), world_size)",
        "torch.arange(0, len(labels), world_size)",
        arguments=CIFAR10,
    ),
    Mistake(
        "the local rank for the rank",
        "nodes/who",
        'facts = {"rank": rank,',
        'facts = {"rank": local_rank,',
        nodes=2,
    ),
    Mistake(
        "the rank for the local rank",
        "nodes/who",
        'int(told.get("LOCAL_RANK", rank))',
        "rank",
        nodes=2,
    ),
    Mistake(
        "a rank that brings another's number",
        "nodes/first_job",
        "numbers += rank + 1",
        "numbers += rank",
    ),
    Mistake(
        "a card that computes wrong numbers",
        "nodes/first_job",
        "ones = torch.ones(side, side, device=device)",
        "ones = torch.ones(side, side, device=device)\n    ones[-1, -1] = 1.01",
    ),
    Mistake(
        "groups in another order on each rank",
        "cost/wire",
        "combinations(range(world_size), 2):",
        "list(combinations(range(world_size), 2))[:: 1 if rank else -1]:",
        ranks=3,
    ),
    Mistake(
        "a place in the world for one in the group",
        "cost/wire",
        "dist.get_rank(group) + 1.0",
        "dist.get_rank() + 1.0",
        ranks=3,
    ),
    Mistake(
        "a node's sum stays with its leader",
        "less/two_levels",
        "    dist.broadcast(tensor, src=leader, group=inside)",
        "    pass",
        nodes=2,
    ),
    Mistake(
        "the leaders' sum is forgotten",
        "less/two_levels",
        "        dist.all_reduce(tensor, group=across)",
        "        pass",
        nodes=2,
    ),
    Mistake(
        "never synchronised",
        "less/fewer_bits",
        'way in ("once", "both") and turn < MICRO - 1',
        'way in ("once", "both")',
    ),
    Mistake(
        "not divided by the micro-batches",
        "less/fewer_bits",
        ".mean() / MICRO",
        ".mean()",
    ),
    Mistake(
        "rounded to bfloat16 in all ways",
        "less/fewer_bits",
        'if short := way in ("bf16", "both"):',
        'if (short := way in ("bf16", "both")) or True:',
    ),
    Mistake(
        "the torchrun's number for the rank's",
        "nodes/from_slurm",
        'facts = {"rank": rank,',
        'facts = {"rank": int(node),',
    ),
    Mistake(
        "nothing to forget",
        "elastic/restart",
        "for _ in range(DRAWS):",
        "for _ in range(0):",
    ),
    Mistake(
        "one note for all ranks",
        "elastic/restart",
        'folder / f"{rank}.json"',
        'folder / "0.json"',
    ),
    Mistake(
        "leave the optimizer out of the snapshot",
        "elastic/survive",
        '        self.optimizer.load_state_dict(kept["optimizer"])\n',
        "",
        arguments="--die 12",
    ),
    Mistake(
        "count the steps of this life only",
        "elastic/survive",
        'self.worlds, self.used = kept["worlds"], kept["used"]',
        'self.used = kept["used"]',
        arguments="--die 12",
    ),
    Mistake(
        "the local engine",
        "rpc/rnn",
        "dist_autograd.backward(context, [loss])",
        "loss.backward()",
    ),
    Mistake(
        "micro-batches in another order",
        "rpc/rnn",
        "for rref in scores]",
        "for rref in reversed(scores)]",
    ),
    Mistake(
        "an unused call",
        "rpc/contexts",
        "+ 0 * unused",
        "",
    ),
    Mistake(
        "the gradient of another context",
        "rpc/contexts",
        "return found, len(held)",
        "return next(iter(held.values())), len(held)",
        ranks=3,
    ),
    Mistake(
        "memory of one's own",
        "rpc/hogwild",
        "shared=True",
        "shared=False",
    ),
    Mistake(
        "a file of one's own",
        "rpc/hogwild",
        "        dist.broadcast_object_list(name, src=0)",
        "        # nobody tells",
    ),
    Mistake(
        "the sum for the mean",
        "rpc/parameter_server",
        "torch.stack(gradients).mean(0)\n        self.log",
        "torch.stack(gradients).sum(0)\n        self.log",
    ),
    Mistake(
        "it waits for nobody",
        "rpc/parameter_server",
        "Server(enough, lr)",
        "Server(1, lr)",
    ),
    Mistake(
        "each trainer steps with the whole rate",
        "rpc/owned",
        "lr=LR / trainers)",
        "lr=LR)",
        ranks=3,
    ),
    Mistake(
        "the same batch for all trainers",
        "rpc/owned",
        "tokens, target = batch(step, trainer)",
        "tokens, target = batch(step, 0)",
        ranks=3,
    ),
    Mistake(
        "the whole rate from each trainer",
        "rpc/table_server",
        "lr=LR / trainers",
        "lr=LR",
        ranks=3,
    ),
    Mistake(
        "a dense part for each",
        "rpc/table_server",
        "DDP(make_dense(), process_group=group)",
        "make_dense()",
        ranks=3,
    ),
    Mistake(
        "no mean",
        "rpc/table_rows",
        "        table.weight.grad /= world_size  # the mean, as DDP has it\n",
        "",
    ),
    Mistake(
        "gradients go where rows came from",
        "rpc/table_rows",
        "ctx.sizes, rank = (recv, send)",
        "ctx.sizes, rank = (send, recv)",
    ),
    Mistake(
        "answers from the wrong worker",
        "rpc/calls",
        'others = [f"worker{other}" for',
        'others = ["worker1" for',
        ranks=3,
    ),
    Mistake(
        "forget to wait for the naps",
        "rpc/calls",
        "        future.wait()  # all naps",
        "        pass  # all naps",
    ),
    Mistake(
        "the late call is waited for",
        "rpc/lost",
        "nap, LATE, timeout=PATIENCE)",
        "nap, LATE, timeout=4 * LATE)",
    ),
    Mistake(
        "reach for the object from afar",
        "rpc/owner",
        "rpc.rpc_sync(rref.owner(), double, args=(rref,))",
        "double(rref)",
    ),
    Mistake(
        "keep the reference for the log",
        "rpc/owner",
        "    del rref  #",
        "    log, rref = [rref], None  #",
        ranks=3,
    ),
    Mistake(
        "fetch the numbers to add them up",
        "rpc/wire",
        "partial(rpc.rpc_sync, to, add_up, args=(rref,))",
        "lambda: rref.to_here().sum()",
    ),
    Mistake(
        "send the tensor that is to lie there",
        "rpc/wire",
        "partial(rpc.remote, to, torch.ones, args=((LARGE,),))",
        "partial(rpc.remote, to, torch.clone, args=(large,))",
    ),
    Mistake(
        "one random stream for all",
        "rpc/observers",
        "generator=self.streams[n]",
        "generator=self.streams[0]",
        ranks=3,
    ),
    Mistake(
        "one pole for all",
        "rpc/observers",
        "(rref, number, turn * POLES + number) for",
        "(rref, number, turn * POLES) for",
    ),
    Mistake(
        "the promise of the step before",
        "rpc/batched",
        "asked, desk.asked, desk.answers = desk.asked, {}, torch.futures.Future()",
        "asked, desk.asked = desk.asked, {}",
    ),
    Mistake(
        "a batch that forgets a pole",
        "rpc/batched",
        "promise.set_result(desk.agent.choose(asked))",
        "promise.set_result(desk.agent.choose(asked) | {0: 0})",
    ),
    Mistake(
        "the guest stays",
        "rpc/guest",
        "    rpc.shutdown()  # in such",
        "    rank or rpc.shutdown()  # in such",
    ),
    Mistake(
        "every worker waits for the guest",
        "rpc/guest",
        'init_rpc(f"worker{rank}", rank=rank,',
        'init_rpc(f"worker{rank}", rank=rank, world_size=world_size,',
    ),
    Mistake(
        "skip a worker",
        "rpc/chain",
        '(me + 1) % world_size}", passes_on',
        '(me + 2) % world_size}", passes_on',
    ),
    Mistake(
        "a promise that nobody keeps",
        "rpc/chain",
        "        future.set_result(total + me)\n",
        "",
    ),
    Mistake(
        "a collective without the parcel",
        "rpc/endpoint",
        'parcels = [Parcel("a broadcast") if rank == 0 else None]',
        'parcels = ["a broadcast" if rank == 0 else None]',
    ),
    Mistake(
        "the parcel is never opened",
        "rpc/endpoint",
        "return leave_note, (self.text,)",
        "return str, (self.text,)",
    ),
    Mistake(
        "leave as if nobody were missing",
        "rpc/lost",
        "    rpc.shutdown(graceful=False)",
        "    # rpc.shutdown(graceful=False)",
    ),
    Mistake(
        "only the old collectives count",
        "old_pages/tutorial_2017",
        "return 6 + len(found) + 1, 6",
        "return 6, 6",
    ),
    Mistake(
        "a collective brings another number",
        "old_pages/tutorial_2017",
        "    dist.all_to_all_single(cells, mine)",
        "    # dist.all_to_all_single(cells, mine)",
    ),
    Mistake(
        "the ring of 2017 sends something",
        "old_pages/rings",
        "(torch.zeros_like(send) for _ in range(3))",
        "(torch.ones_like(send) for _ in range(3))",
    ),
    Mistake(
        "the corrected ring adds what it sent",
        "old_pages/rings",
        "        total += arrives\n",
        "        total += leaves\n",
        ranks=3,
    ),
    Mistake(
        "saving after the epoch",
        "old_pages/course_2022",
        "        torch.save(epochs, file)\n        epochs += 1",
        "        epochs += 1\n        torch.save(epochs, file)",
    ),
    Mistake(
        "a sampler that knows the epoch",
        "old_pages/course_2022",
        "{tuple(sampler) for _ in range(3)}",
        "{tuple(sampler) for e in range(3) if not sampler.set_epoch(e)}",
    ),
    Mistake(
        "two machines, and global rank 0 writes",
        "old_pages/course_2022_files",
        "if local_ranks[r] == 0]",
        "if r == 0]",
        nodes=2,
    ),
    Mistake(
        "rank 0 downloads for all",
        "old_pages/course_2022_files",
        "            download_url(",
        "            rank or download_url(",
    ),
    Mistake(
        "the module is tested, not the wrapper",
        "old_pages/course_2022_alone",
        "                ddp(batch)\n",
        "                ddp.module(batch)\n",
    ),
    Mistake(
        "the test with gradients",
        "old_pages/course_2022_alone",
        "torch.no_grad(), ",
        "",
    ),
    Mistake(
        "the child finds its meeting point",
        "old_pages/course_2022_spawn",
        "MASTER_PORT=sys.argv[1])",
        'MASTER_PORT=sys.argv[1], TORCHELASTIC_USE_AGENT_STORE="")',
    ),
    Mistake(
        "the models stay apart",
        "old_pages/note_2021",
        "told(line(seed=rank).module.weight.item())",
        "told(rank)",
    ),
    Mistake(
        "the ranks print one loss",
        "old_pages/note_2021",
        "torch.arange(1.0, 6.0) + 5 * rank",
        "torch.arange(1.0, 6.0)",
    ),
    Mistake(
        "one optimizer for all epochs",
        "old_pages/guides",
        "return train(2, 1), train(3)",
        "return train(3), train(3)",
    ),
    Mistake(
        "the ranks make the same call",
        "old_pages/guides",
        "all_reduce if rank == 0 else broadcast",
        "all_reduce",
    ),
    Mistake(
        "what came later is not counted",
        "old_pages/overview_2020",
        "return 3 + sum(",
        "return 3 + 0 * sum(",
    ),
    Mistake(
        "the optimizer is cut twice",
        "scale/road",
        "t.states * part / c.shard, 0",
        "t.states * part / c.shard / c.data, 0",
    ),
    Mistake(
        "a layer is lost",
        "scale/road",
        "layers = ceil(t.layers / c.pipeline)",
        "layers = ceil(t.layers / c.pipeline) - 1",
    ),
    Mistake(
        "a sum over rows, not their mean",
        "sharding/fully_shard",
        "        loss.backward()\n",
        "        (len(x) * loss).backward()\n",
    ),
    Mistake(
        "every rank feeds the first rank's rows",
        "sharding/fully_shard",
        "tensor.chunk(mesh.size())[mesh.get_rank()]",
        "tensor.chunk(mesh.size())[0]",
    ),
    Mistake(
        "the last micro-batch is not reduced",
        "sharding/recipe",
        "is_last = i == len(micro_batches) - 1",
        "is_last = i == len(micro_batches)",
    ),
    Mistake(
        "the norm is one rank's own",
        "sharding/recipe",
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "    return mean, norm.full_tensor().item()\n",
        "    own = [p.grad.to_local().norm() for p in model.parameters()]\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "    return mean, torch.stack(own).norm().item()\n",
    ),
    Mistake(
        "the loss is in bf16",
        "sharding/recipe",
        "mp_policy=to_float32",
        "mp_policy=policy",
    ),
    Mistake(
        "the buffer is never filled",
        "sharding/recipe",
        "    model.fill_buffers()  # they are in no state_dict\n",
        "    model.waves.zero_()\n",
    ),
    Mistake(
        "what is saved shares memory with what trains on",
        "sharding/recipe",
        "        if not saved and number + 1 == SAVED_AFTER:",
        "        if not saved and number + 1 == SAVED_AFTER + 1:",
    ),
    Mistake(
        "the optimizer's state is left behind",
        "sharding/recipe",
        "    dcp.load(state, checkpoint_id=folder)",
        '    dcp.load({k: state[k] for k in ("model", "done")}, checkpoint_id=folder)',
    ),
    Mistake(
        "a block is recomputed with other numbers",
        "sharding/memory",
        "(checkpoint, layer.forward, use_reentrant=False)",
        "(checkpoint, layer.norm1.forward, use_reentrant=False)",
    ),
    Mistake(
        "replicas see the same rows",
        "sharding/hybrid",
        "[mesh.get_rank()]",
        "[mesh.get_rank() % (mesh.size() // 2)]",
    ),
    Mistake(
        "the mesh is transposed",
        "sharding/hybrid",
        'square.get_local_rank("shard")',
        'square.get_local_rank("replicate")',
        ranks=4,
    ),
    Mistake(
        "a backward needs nothing of the stage behind",
        "pipeline/plan",
        '    behind = [(stage + 1, "I", i)] if stage < stages - 1 else []',
        "    behind = []",
    ),
    Mistake(
        "naps of half a unit",
        "pipeline/plan",
        "time.sleep(UNIT * units(action))",
        "time.sleep(UNIT * units(action) / 2)",
    ),
    Mistake(
        "laps in the same order on the way back",
        "pipeline/interleaved",
        'lap = lap if what == "F" else STAGES_PER_RANK - 1 - lap',
        "lap = 0 + lap",
    ),
    Mistake(
        "relu is forgotten on the way back",
        "pipeline/train",
        "grad = grad * (out > 0)",
        "grad = grad * 1",
    ),
    Mistake(
        "the last micro-batch's gradient alone",
        "pipeline/train",
        "self.grad += x.T @ grad",
        "self.grad = x.T @ grad",
    ),
    Mistake(
        "gradients of micro-batches are not averaged",
        "pipeline/library",
        "loss_fn=F.mse_loss)",
        "loss_fn=F.mse_loss, scale_grads=False)",
    ),
    Mistake(
        "each end follows its own use of the weight",
        "pipeline/tied",
        "    sum_the_tied(part, ends)\n",
        "",
    ),
    Mistake(
        "blocks under numbers of their own",
        "pipeline/tied",
        "{str(n): whole.blocks[n] for n in range(*edges)}",
        "{str(n - edges[0]): whole.blocks[n] for n in range(*edges)}",
    ),
    Mistake(
        "no sum in f",
        "tensor/conjugate",
        "        return all_reduce(grad)\n",
        "        return grad\n",
    ),
    Mistake(
        "a sum in g, on the way back too",
        "tensor/conjugate",
        "        return grad\n",
        "        return all_reduce(grad)\n",
    ),
    Mistake(
        "the output layer without f",
        "tensor/vocabulary",
        "    net.head.register_forward_pre_hook("
        "lambda _, inputs: Enter.apply(*inputs))\n",
        "",
    ),
    Mistake(
        "all ranks begin at position 0",
        "tensor/sequence",
        "at[0] + dist.get_rank() * len(at[0])",
        "at[0] + 0 * len(at[0])",
    ),
    Mistake(
        "a mask for each rank, outside",
        "tensor/dropout",
        "seeds = SEED, SEED + 1 + rank",
        "seeds = SEED + 1000 + rank, SEED + 1 + rank",
    ),
    Mistake(
        "one mask for all ranks, inside",
        "tensor/dropout",
        "seeds = SEED, SEED + 1 + rank",
        "seeds = SEED, SEED + 1",
    ),
    Mistake(
        "only rank 0's numbers count",
        "sharding/zero_calls",
        "lambda: dist.all_reduce(flat)",
        "lambda: dist.broadcast(flat, 0)",
    ),
    Mistake(
        "each rank cuts its own shard out, and nothing is summed",
        "sharding/zero_calls",
        "dist.reduce_scatter_tensor(shard, flat)",
        "shard.copy_(flat.chunk(world_size)[rank])",
    ),
    Mistake(
        "past DDP",
        "sharding/zero1",
        "loss_of(self.ddp(tokens), targets)",
        "loss_of(self.model(tokens), targets)",
    ),
    Mistake(
        "all ranks take the same samples",
        "sharding/zero1",
        "each[rank::world_size] for each in samples",
        "each[:SAMPLES] for each in samples",
    ),
    Mistake(
        "all ranks own the first shard",
        "sharding/zero1",
        "[dist.get_rank()]\n",
        "[0]\n",
    ),
    Mistake(
        "the others' new weights are not fetched",
        "sharding/zero1",
        "        self.adam.zero_grad()\n        for unit in self.units:\n"
        "            unit.gather()\n",
        "        self.adam.zero_grad()\n",
    ),
    Mistake(
        "the sum over ranks for their mean",
        "sharding/zero1",
        "dist.get_world_size(), -1).mean(0)",
        "dist.get_world_size(), -1).sum(0) * 0.01",
    ),
    Mistake(
        "nothing is reduced",
        "sharding/zero2",
        "reduce_scatter(gradients)",
        "gradients.chunk(dist.get_world_size())[dist.get_rank()]",
    ),
    Mistake(
        "the weights of the step before",
        "sharding/zero3",
        "        dist.all_gather_into_tensor(self.flat, self.shard.detach())\n",
        '        self.old = getattr(self, "old", self.shard.detach().clone())\n'
        "        dist.all_gather_into_tensor(self.flat, self.old)\n",
    ),
    Mistake(
        "embedding and head are two weights",
        "tensor/library",
        "    net.head.weight = net.tokens.weight\n",
        "",
    ),
    Mistake(
        "the dimensions are exchanged",
        "tensor/mesh",
        'shape, names = (world_size // inner, inner), ("data", "tensor")',
        'shape, names = (inner, world_size // inner), ("tensor", "data")',
        nodes=2,
    ),
    Mistake(
        "the sum is that of all ranks",
        "tensor/mesh",
        "dist.all_reduce(total, group=line.get_group())",
        "dist.all_reduce(total)",
        nodes=2,
    ),
    Mistake(
        "both halves of the batch are the same",
        "tensor/two_d",
        "t.chunk(turns)[turn]",
        "t.chunk(turns)[0]",
        ranks=4,
    ),
    Mistake(
        "the norms are not in the plan",
        "tensor/two_d",
        '        "blocks.*.norm1": Whole(),\n',
        "",
        ranks=4,
    ),
    Mistake(
        "an f for each of query, key and value",
        "tensor/two_d",
        "cut(uncut(device), mesh, shared_input())",
        "cut(uncut(device), mesh, plan())",
        ranks=4,
    ),
    Mistake(
        "the ranks of a tensor group see different rows",
        "tensor/two_d",
        'turn, turns = mesh["data"].get_local_rank(), mesh["data"].size()',
        "turn, turns = rank, world_size",
        ranks=4,
    ),
    Mistake(
        "a micro-batch early: the first gradient reduces the unit",
        "sharding/zero2",
        "        if self.made % len(self.weights):\n",
        "        if (self.made - 1) % len(self.weights):\n",
    ),
    Mistake(
        "a block is not freed after backward",
        "sharding/zero3",
        "        self.free()  # the unit's backward is over\n",
        "",
    ),
    Mistake(
        "nobody looks ahead",
        "sharding/events",
        "set_modules_to_forward_prefetch([following])",
        "set_modules_to_forward_prefetch([])",
    ),
    Mistake(
        "freed although it should stay",
        "sharding/events",
        "models.append(shard(build(mesh), mesh, reshard_after_forward=False))",
        "models.append(shard(build(mesh), mesh))",
    ),
    Mistake(
        "nothing is recomputed",
        "sharding/memory",
        "nets[name] = shard(net, mesh, **options)",
        "nets[name] = shard(build(mesh), mesh, **options)",
    ),
    Mistake(
        "each rank subtracts its own largest logit",
        "tensor/vocabulary",
        "largest = all_reduce(logits.detach().amax(-1), dist.ReduceOp.MAX)",
        "largest = logits.detach().amax(-1)",
    ),
    Mistake(
        "a share is thought a sum",
        "tensor/sequence",
        "    dist.reduce_scatter(mine, positions)",
        "    mine.copy_(positions[dist.get_rank()])",
    ),
    Mistake(
        "each rank loads another seed",
        "tensor/library",
        "    torch.manual_seed(0)  # the same",
        "    torch.manual_seed(dist.get_rank())  # the same",
    ),
]


TURNS: dict[tuple[str, int], list[Mistake]] = defaultdict(list)
"""By program and number of ranks: mistakes that the same ranks make in turn."""
ALONE: list[Mistake] = []
"""Mistakes that each need a launch of its own."""
# These are killed, start processes, or leave threads of RPC behind when they fail.
NOT_IN_TURN = (
    *RESTARTS,
    "old_pages/course_2022_spawn",
    "old_pages/tutorial_2017",
    "rpc/",
)
for mistake in MISTAKES:
    alone = f"{mistake.program}.py".startswith(NOT_IN_TURN)
    if alone or mistake.arguments or mistake.nodes > 1:
        ALONE.append(mistake)
    else:
        TURNS[mistake.program, mistake.ranks].append(mistake)
NOTICED = ("exception", "timeout")


def planted(mistake: Mistake, folder: Path) -> Path:
    """Write a program with a mistake in it; return its path."""
    path = ROOT / "ddp_lab" / f"{mistake.program}.py"
    path = variant(path, mistake.old, mistake.new, folder=folder / "variant")
    return quick(Path(path), folder)


def quick(path: Path, folder: Path) -> Path:
    """Return a copy of a program that tests can afford, or the program itself."""
    return smaller(path, folder / "smaller")


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: f"{turn[0]}-{turn[1]}")
def test_mistakes_are_caught_and_the_program_is_right(turn, tmp_path):
    program, ranks = turn
    paths = {
        planted(mistake, tmp_path / str(number)): mistake.name
        for number, mistake in enumerate(TURNS[turn])
    }
    right = quick(ROOT / "ddp_lab" / f"{program}.py", tmp_path / "right")
    ended, printed = tell_apart(ranks, [*paths], [right], timeout=20)
    assert not ended.pop(right), printed
    unnoticed = {paths[p]: kind for p, kind in ended.items() if kind not in NOTICED}
    assert not unnoticed, printed


@pytest.mark.parametrize("mistake", ALONE, ids=lambda m: f"{m.program}: {m.name}")
def test_the_mistake_is_caught(mistake, tmp_path):
    path, arguments = planted(mistake, tmp_path), mistake.arguments
    if "{data}" in arguments:
        data = prepare().root
        arguments = arguments.format(data=data, tmp=tmp_path / "checkpoint.pt")
    again = RESTARTS.get(f"{mistake.program}.py", "")
    if again or mistake.nodes > 1:
        options = f"--nnodes {mistake.nodes} --nproc-per-node {mistake.ranks} {again}"
        command = f"{options} {path} {arguments}"
        run = torchrun(command, timeout=20, expect_failure=True)
    else:
        run = launch(mistake.ranks, path, arguments, timeout=20, expect_failure=True)
    assert run.failure.kind in NOTICED, run.failure.report()


def test_every_program_has_a_planted_mistake():
    programs = {name_of(path).removesuffix(".py") for path in PROGRAMS}
    programs -= {name for name in programs if name.startswith("clinic/")}  # sick
    exercises = {n for n in programs if "/exercise" in n or "/puzzle" in n}
    # nodes/spawn.py runs under plain python, and test_programs.py breaks it;
    # ddp/single.py is what others are compared with.
    unplanted = {"nodes/spawn", "ddp/single"}
    assert programs - exercises - unplanted == {m.program for m in MISTAKES}
