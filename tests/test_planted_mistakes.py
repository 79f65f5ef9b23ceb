"""Mistakes that people make, each put into a program: none may go unnoticed.

A program that keeps quiet with one of these in it teaches nothing, so this file is the
proof that the checks in the programs can fail. `make test` plants the first mistake in
the first program of each folder here, and runs the program itself after it, in the same
ranks; `make test-all` plants all of them.
"""

import re
from pathlib import Path

import pytest
from conftest import ARGUMENTS, PROGRAMS, RESTARTS, name_of, smaller
from ranks import launch, tell_apart
from support import FULL

from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun, variant

pytestmark = pytest.mark.processes

MISTAKES = {
    "nodes/from_slurm": {
        "call every rank of a node the first one": (
            'local_rank = int(told.get("LOCAL_RANK", rank))',
            "local_rank = 0",
        ),
        "the torchrun's number for the rank's": (
            'facts = {"rank": rank,',
            'facts = {"rank": int(node),',
        ),
    },
    "start/hello": {
        "shares that overlap": ("numbers[rank::world_size]", "numbers[rank:]"),
        "all_reduce on one rank only": (
            "    dist.all_reduce(total)",
            "    if rank == 0:\n        dist.all_reduce(total)",
        ),
    },
    "start/join": {
        "work before joining": (
            "    dist.init_process_group(",
            "    work(device)\n    dist.init_process_group(",
        ),
    },
    "p2p/send_recv": {
        "send another's number": ("base + other for", "base + other - 1 for"),
    },
    "p2p/exchange": {
        "everybody sends first": ("if dist.get_rank() % 2 == 0:", "if True:"),
        "exchange with the wrong neighbor": (
            "(rank + 1) % world_size",
            "(rank + 2) % world_size",
        ),
    },
    "p2p/ring": {
        "do not add to the token": (
            "dist.send(token + rank, dst=right)",
            "dist.send(token, dst=right)",
        ),
        "send to the wrong neighbor": (
            "(rank - 1) % world_size, (rank + 1) % world_size",
            "(rank + 1) % world_size, (rank - 1) % world_size",
        ),
    },
    "collectives/rooted": {
        "another operator": (
            "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.SUM)",
            "dist.reduce(buf, dst=ROOT, op=dist.ReduceOp.MAX)",
        ),
        "broadcast on one rank only": (
            "    dist.broadcast(buf, src=ROOT)",
            "    if rank == ROOT:\n        dist.broadcast(buf, src=ROOT)",
        ),
    },
    "collectives/all": {
        "reduce on one rank only": (
            "    dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
            "    if rank == 0:\n        dist.all_reduce(buf, op=dist.ReduceOp.SUM)",
        ),
        "another operator": (
            "dist.reduce_scatter_tensor(recv_buf, row, op=dist.ReduceOp.SUM)",
            "dist.reduce_scatter_tensor(recv_buf, row, op=dist.ReduceOp.MAX)",
        ),
    },
    "collectives/late": {
        "the late one leaves no note": (
            'store.set(key, "here I come")',
            "store.set('', '')",
        ),
        "each adds up alone": ("dist.all_reduce(many)", "many.add_(0)"),
    },
    "collectives/reduce_ops": {
        "the operator is not passed on": (
            "dist.all_reduce(buf, op=made.get(name) or getattr(dist.ReduceOp, name))",
            "dist.all_reduce(buf)",
        ),
    },
    "collectives/groups": {
        "the group is not passed on": (
            "op=dist.ReduceOp.SUM, group=group)",
            "op=dist.ReduceOp.SUM)",
        ),
        "a place in the group taken for a rank, on 4 ranks": (
            "src=ranks[0], group=group",
            "group_src=ranks[0], group=group",
        ),
    },
    "collectives/list": {
        "cut up in the wrong order": (
            "[glued.chunk(len(tensors)) for glued in recv_buf.chunk(world_size)]",
            "[glued.chunk(world_size) for glued in recv_buf.chunk(len(tensors))]",
        ),
        "each gathers its own": (
            "dist.all_gather(copies, tensor)",
            "copies = [tensor] * world_size",
        ),
    },
    "collectives/averaging": {
        "forget the division by the world size": (
            "    weight /= dist.get_world_size()",
            "    weight /= 1",
        ),
    },
    "ddp/by_hand": {
        "forget the division by the world size": (
            "parameter.grad /= dist.get_world_size()",
            "parameter.grad /= 1",
        ),
        "do not share the weights": ("    share_weights(model)\n", ""),
    },
    "ddp/basics": {
        "no DDP": (
            "    model = DDP(model)  # every rank now holds rank 0's weights\n",
            "",
        ),
        "the same shard everywhere": (
            "x[rank::world_size], y[rank::world_size]",
            "x[0::world_size], y[0::world_size]",
        ),
    },
    "practice/no_sync": {
        "never synchronise": (
            "if turn < MICRO - 1 else nullcontext():\n            loss = model",
            "if True else nullcontext():\n            loss = model",
        ),
        "do not divide by the number of micro-batches": (
            "nullcontext():\n            loss = model(sample).mean() / MICRO",
            "nullcontext():\n            loss = model(sample).mean()",
        ),
    },
    "practice/fp16": {
        "a gradient that is no number": (
            "    return gradient\n",
            "    return torch.nan if dtype is torch.bfloat16 else gradient\n",
        ),
        "the gradients are scaled and never unscaled": (
            "    scaler.unscale_(optimizer)",
            "    #",
        ),
        "forget the scale": ("scaler.scale(loss).backward()", "loss.backward()"),
    },
    "practice/skip": {
        "skip the step alone": (
            "    dist.all_reduce(failed, dist.ReduceOp.MAX)",
            "    #",
        ),
        "skip only if all have failed": ("dist.ReduceOp.MAX", "dist.ReduceOp.MIN"),
    },
    "practice/straggler": {
        "train past DDP": ("loss = model(batch)", "loss = model.module(batch)"),
        "no rank naps": ("step == SLEEPY:", "step == STEPS:"),
    },
    "scale/three_d": {
        "the ranks of a tensor group work on different samples, on 4 ranks": (
            "tokens.chunk(turns)[turn] for",
            "tokens.chunk(2)[dist.get_rank() % 2] for",
        ),
        "each stage clips by itself, on 2 ranks": (
            "    dist.all_reduce(square, group=pipeline)  #",
            "    #",
        ),
        "the norms are left out of the plan, on 4 ranks": (
            '        "blocks.*.norm1": SequenceParallel(),\n',
            "",
        ),
    },
    "less/top_k": {
        "owe nothing": (
            "total = bucket.buffer() + owed[index]",
            "total = bucket.buffer()",
        ),
        "each rank takes its own choice only": (
            "zip(places, numbers, strict=True)",
            "[(largest, total[largest])]",
        ),
    },
    "less/hooks": {
        "top-k that owes nothing": (
            "total = bucket.buffer() + owed[index]",
            "total = bucket.buffer()",
        ),
        "each rank adds its own choice only": (
            "zip(places, numbers, strict=True)",
            "[(largest, total[largest])]",
        ),
    },
    "less/rarely": {
        "go on from one's own weights": (
            "vector_to_parameters(self.common.data.clone(), ddp.parameters())",
            "pass",
        ),
        "the sum of the ways for their mean": (
            "mean, length = way / dist.get_world_size(), way",
            "mean, length = way, way",
        ),
    },
    "practice/seeds": {
        "one seed for the workers of all ranks": (
            '"a seed each": (rank, None)',
            '"a seed each": (0, None)',
        ),
        "each rank shuffles its own way": (
            "DistributedSampler(samples)",
            "DistributedSampler(samples, seed=dist.get_rank())",
        ),
    },
    "long/ring": {
        "earlier tiles are not scaled down": (
            "shrink = (self.largest - largest).exp()",
            "shrink = 1.0",
        ),
        "the tiles that are hidden are taken for the others": (
            "if other <= piece:",
            "if other >= piece:",
        ),
    },
    "long/zigzag": {
        "within a piece, a query sees keys that come later": (
            "diagonal=other == piece",
            "diagonal=False",
        ),
    },
    "long/ulysses": {
        "an exchange whose backward is the same way": (
            "ctx.way = join, cut",
            "ctx.way = cut, join",
        ),
        "each rank's positions begin at 0": (
            "at[0] + dist.get_rank() * len(at[0])",
            "at[0]",
        ),
    },
    "long/experts": {
        "experts of different ranks share a gradient": (
            'if "experts." not in name:',
            "if True:",
        ),
        "an expert's gradient is the sum, not the mean over the ranks": (
            "        p.grad /= dist.get_world_size()",
            '        p.grad /= 1 if "experts." in name else dist.get_world_size()',
        ),
    },
    "long/balance": {
        "a loss of counts, which have no gradient": (
            "EXPERTS * (share * probs.mean(0)).sum()",
            "EXPERTS * (share * share + 0 * probs.mean(0)).sum()",
        ),
        "the balance loss is subtracted": (
            "+ alpha * layer.balance",
            "- alpha * layer.balance",
        ),
    },
    "long/slow": {
        "no rank waits for what the others' experts return": (
            "        back = Exchange.apply(out[order.argsort()], comes, sends)",
            "        back = rows.clone()",
        ),
    },
    "inside/each": {
        "share the weights of another rank": (
            "dist.broadcast(tensor.detach(), src=0)",
            "dist.broadcast(tensor.detach(), src=1)",
        ),
        "sum instead of the mean": (
            "            weight.grad /= dist.get_world_size()\n",
            "",
        ),
    },
    "inside/flat": {
        "pieces in another order": (
            "zip(self.weights, pieces, strict=True)",
            "zip(self.weights, reversed(pieces), strict=True)",
        ),
        "send one gradient twice": (
            "        dist.all_reduce(flat)",
            "        dist.all_reduce(flat[:1].clone())\n        dist.all_reduce(flat)",
        ),
    },
    "inside/hooks": {
        "do not wait for the last gradient": (
            "for work in self.works:",
            "for work in self.works[:-1]:",
        ),
        "a hook before the gradient is added up": (
            "weight.register_post_accumulate_grad_hook(self.ready)",
            "weight.register_hook(lambda _, w=weight: self.ready(w))",
        ),
    },
    "inside/buckets": {
        "buckets that stay full after the first step": (
            "        self.works, self.made = [], set()",
            "        self.works = []",
        ),
        "buckets twice as large as torch's": ("cap=2**20", "cap=2**21"),
    },
    "inside/overlap": {
        "send when backward() is over": (
            "            if not weights <= self.made:\n",
            "            if len(self.made) < len(self.weights):\n",
        ),
    },
    "inside/no_sync": {
        "send every micro-batch": (
            "        self.syncs = False\n",
            "        self.syncs = True\n",
        ),
        "stay silent after no_sync()": (
            "            self.syncs = True",
            "            pass",
        ),
    },
    "inside/graph": {
        "a gradient for what no rank has used": (
            "weight.grad = weight.grad if ranks else None",
            "weight.grad = weight.grad",
        ),
        "an evaluation that sends": ("if not torch.is_grad_enabled():", "if False:"),
        "no gradient for what only another rank has used": (
            "        dist.all_reduce(votes)",
            "        dist.all_reduce(votes.clone())",
        ),
    },
    "inside/join": {
        "the mean over all ranks to the end": (
            "flat /= max(self.voters, 1)",
            "flat /= dist.get_world_size()",
        ),
        "stop when the own batches end": (
            "        if not model.voters:",
            "        if batch is None:",
        ),
    },
    "inside/norm": {
        "a mean over the own rows in backward": (
            "        dist.all_reduce(sums)  # each sample has moved the mean for all\n",
            "        sums *= dist.get_world_size()\n",
        ),
        "buffers of each rank": (
            "            dist.broadcast(buffer, src=0)",
            "            buffer.add_(0)",
        ),
    },
    "inside/beyond": {
        "a graph that DDP does not cut": (
            "torch._dynamo.config.optimize_ddp = splits",
            "torch._dynamo.config.optimize_ddp = False",
        ),
        "another size of the buckets": (
            '"default": {},',
            '"default": {"bucket_cap_mb": 1},',
        ),
    },
    "cost/line": {
        "outliers count more than all others": (
            "weight = ((rows @ line)[:, 0] - 1).abs().clamp(min=1e-3).rsqrt()",
            "weight = ((rows @ line)[:, 0] - 1).abs().clamp(min=1e-3).sqrt()",
        ),
        "a rank looks at the part that it had before": (
            "return whole[-len(part) :], world_size",
            "return part, world_size",
        ),
    },
    "cost/ways": {
        "a ring that sends on what it has not received": (
            "(r - s) % n, (r - s) % n + 1)",
            "(r + s) % n, (r + s) % n + 1)",
        ),
        "on the way back, sums are added again": (
            "[Message(b, a, i, j, False) for",
            "[Message(b, a, i, j) for",
        ),
        "what comes back stays in the room for sums": (
            "into = room[span] if adds else buffer[span]",
            "into = room[span]",
        ),
    },
    "cost/step": {
        "one bucket for all layers": ("bucket_cap_mb=1)", "bucket_cap_mb=25)"),
        "each rank keeps its own gradient": (
            "return allreduce_hook(None, bucket)",
            "return (own := torch.futures.Future()).set_result(bucket.buffer()) or own",
        ),
    },
    "profiling/traced": {
        "the profiler is not told where a step ends": (
            "            prof.step()  # a step of the trace ends here\n",
            "",
        ),
        "the model is not wrapped": (
            "model = DDP(network().to(device))  # waits for rank 0",
            "model = network().to(device)",
        ),
    },
    "profiling/workers": {
        "too few batches for the schedule": (
            "BATCH * STEPS * world_size)",
            "BATCH * (STEPS - 4) * world_size)",
        ),
    },
    "profiling/buckets": {
        "no gradient is averaged": (
            "model = DDP(network().to(device), bucket_cap_mb=cap)",
            "model = network().to(device)",
        ),
    },
    "profiling/small": {
        "the optimizer is not fused": ('{"fused": True}', '{"foreach": False}'),
    },
    "profiling/stream": {
        "split by worker only": (
            "first = self.rank * workers + number",
            "first = number",
        ),
        "split by rank only": (
            "first = self.rank * workers + number",
            "first = self.rank * workers",
        ),
    },
    "checkpoint/resume": {
        "leave the optimizer out of the checkpoint": (
            'KEPT = "model", "optimizer", "scheduler"',
            'KEPT = "model", "scheduler"',
        ),
        "one random state for all ranks": ('saved["rng"][rank]', 'saved["rng"][0]'),
        "save before the step": (
            "save(parts, step + 1, random, path)",
            "save(parts, step, random, path)",
        ),
    },
    "checkpoint/basics": {
        "no barrier after the save": (
            "    dist.barrier()  # no rank goes on before the file is whole\n",
            "",
        ),
        "save the wrapped model": (
            '"model": ddp.module.state_dict()}',
            '"model": ddp.state_dict()}',
        ),
    },
    "checkpoint/durable": {
        "replace the file before all of it is written": (
            "            torch.save(saved, file)\n",
            "            file.write(b'half of it')\n",
        ),
    },
    "checkpoint/same_folder": {
        "write all steps into one folder": (
            'save_twice(folder / "1", folder / "2", mesh)',
            'save_twice(folder / "1", folder / "1", mesh)',
        ),
        "take the newest folder, complete or not": (
            '[file.parent for file in sorted(folder.glob("*/.metadata"))]',
            "sorted(folder.iterdir())",
        ),
    },
    "checkpoint/writers": {
        "a temporary file for each writer": (
            'path.with_suffix(".tmp")',
            'path.with_suffix(f".{dist.get_rank()}")',
        ),
    },
    "checkpoint/async_save": {
        "write what training is changing": (
            "save_and_go_on(dcp.async_save, folder, mesh)",
            "save_in_a_thread(folder, mesh)",
        ),
    },
    "checkpoint/dcp": {
        "load the model only": (
            "    dcp.load(state, checkpoint_id=folder)  # fills",
            '    dcp.load({"model": state["model"]}, checkpoint_id=folder)  #',
        ),
    },
    "model/split": {
        "a forgotten .to()": (
            "self.second(hidden.to(self.dev1))",
            "self.second(hidden)",
        ),
        "train past DDP": (
            "take_step(ddp, x, target)",
            "take_step(ddp.module, x, target)",
        ),
    },
    "model/budget": {
        "all samples on every rank": (
            "budget(ddp, x[rank::world_size].clone())",
            "budget(ddp, x)",
        ),
        "count the weights twice": ("if storage.data_ptr() not in own:", "if True:"),
    },
    "cifar10/buffers": {
        "DDP leaves the buffers alone": (
            "DistributedDataParallel(model)",
            "DistributedDataParallel(model, broadcast_buffers=False)",
        ),
        "rank 0 tests alone": (
            "        forward(name, ddp, images)\n        found",
            '        if rank == 0 or name[:5] == "train":\n'
            "            forward(name, ddp, images)\n        found",
        ),
    },
    "cifar10/resnet": {
        "every rank takes the same share": (
            "DistributedSampler(range(len(images[1])), drop_last=True)",
            "DistributedSampler(range(len(images[1])), world_size, 0, drop_last=True)",
        ),
        "noise of the rank, not of the image": (
            "manual_seed(epoch)",
            "manual_seed(dist.get_rank())",
        ),
        "every rank tests the same images": (
            "torch.arange(rank, len(labels), world_size)",
            "torch.arange(0, len(labels), world_size)",
        ),
    },
    "nodes/who": {
        "the local rank for the rank": (
            'facts = {"rank": rank,',
            'facts = {"rank": local_rank,',
        ),
        "the rank for the local rank": ('int(told.get("LOCAL_RANK", rank))', "rank"),
    },
    "nodes/first_job": {
        "a rank that brings another's number": (
            "numbers += rank + 1",
            "numbers += rank",
        ),
        "a card that computes wrong numbers": (
            "ones = torch.ones(side, side, device=device)",
            "ones = torch.ones(side, side, device=device)\n    ones[-1, -1] = 1.01",
        ),
    },
    "cost/wire": {
        "groups in another order on each rank": (
            "combinations(range(world_size), 2):",
            "list(combinations(range(world_size), 2))[:: 1 if rank else -1]:",
        ),
        "a place in the world for one in the group": (
            "dist.get_rank(group) + 1.0",
            "dist.get_rank() + 1.0",
        ),
        "only the last piece is summed": (
            "in buf.chunk(pieces):",
            "in buf.chunk(PIECES)[-1:]:",
        ),
    },
    "less/two_levels": {
        "a node's sum stays with its leader": (
            "    dist.broadcast(tensor, src=leader, group=inside)",
            "    pass",
        ),
        "the leaders' sum is forgotten": (
            "        dist.all_reduce(tensor, group=across)",
            "        pass",
        ),
        "only the last number is summed": (
            "    way(tensor.fill_(rank + 1.0))",
            "    way(tensor.fill_(rank + 1.0)[-1:])",
        ),
    },
    "less/fewer_bits": {
        "never synchronised": (
            'way in ("once", "both") and turn < MICRO - 1',
            'way in ("once", "both")',
        ),
        "not divided by the micro-batches": (".mean() / MICRO", ".mean()"),
        "rounded to bfloat16 in all ways": (
            'if short := way in ("bf16", "both"):',
            'if (short := way in ("bf16", "both")) or True:',
        ),
    },
    "elastic/restart": {
        "nothing to forget": ("for _ in range(DRAWS):", "for _ in range(0):"),
        "one note for all ranks": ('folder / f"{rank}.json"', 'folder / "0.json"'),
    },
    "elastic/survive": {
        "leave the optimizer out of the snapshot": (
            '        self.optimizer.load_state_dict(kept["optimizer"])\n',
            "",
        ),
        "count the steps of this life only": (
            'self.worlds, self.used = kept["worlds"], kept["used"]',
            'self.used = kept["used"]',
        ),
    },
    "rpc/rnn": {
        "the local engine": (
            "dist_autograd.backward(context, [loss])",
            "loss.backward()",
        ),
        "micro-batches in another order": (
            "for rref in scores]",
            "for rref in reversed(scores)]",
        ),
    },
    "rpc/contexts": {
        "an unused call": ("+ 0 * unused", ""),
        "the gradient of another context": (
            "return found, len(held)",
            "return next(iter(held.values())), len(held)",
        ),
    },
    "rpc/hogwild": {
        "memory of one's own": ("shared=True", "shared=False"),
        "a file of one's own": (
            "        dist.broadcast_object_list(name, src=0)",
            "        # nobody tells",
        ),
    },
    "rpc/parameter_server": {
        "the sum for the mean": (
            "torch.stack(gradients).mean(0)\n        self.log",
            "torch.stack(gradients).sum(0)\n        self.log",
        ),
        "it waits for nobody": ("Server(enough, lr)", "Server(1, lr)"),
    },
    "rpc/owned": {
        "each trainer steps with the whole rate": ("lr=LR / trainers)", "lr=LR)"),
        "the same batch for all trainers": (
            "tokens, target = batch(step, trainer)",
            "tokens, target = batch(step, 0)",
        ),
    },
    "rpc/table_server": {
        "the whole rate from each trainer": ("lr=LR / trainers", "lr=LR"),
        "a dense part for each": (
            "DDP(make_dense(), process_group=group)",
            "make_dense()",
        ),
    },
    "rpc/table_rows": {
        "no mean": (
            "        table.weight.grad /= world_size  # the mean, as DDP has it\n",
            "",
        ),
        "gradients go where rows came from": (
            "ctx.sizes, rank = (recv, send)",
            "ctx.sizes, rank = (send, recv)",
        ),
    },
    "rpc/calls": {
        "answers from the wrong worker": (
            'others = [f"worker{other}" for',
            'others = ["worker1" for',
        ),
        "forget to wait for the naps": (
            "        future.wait()  # all naps",
            "        pass  # all naps",
        ),
    },
    "rpc/lost": {
        "the late call is waited for": (
            "nap, LATE, timeout=PATIENCE)",
            "nap, LATE, timeout=4 * LATE)",
        ),
        "leave as if nobody were missing": (
            "    rpc.shutdown(graceful=False)",
            "    # rpc.shutdown(graceful=False)",
        ),
    },
    "rpc/owner": {
        "reach for the object from afar": (
            "rpc.rpc_sync(rref.owner(), double, args=(rref,))",
            "double(rref)",
        ),
        "keep the reference for the log": (
            "    del rref  #",
            "    log, rref = [rref], None  #",
        ),
    },
    "rpc/wire": {
        "fetch the numbers to add them up": (
            "partial(rpc.rpc_sync, to, add_up, args=(rref,))",
            "lambda: rref.to_here().sum()",
        ),
        "send the tensor that is to lie there": (
            "partial(rpc.remote, to, torch.ones, args=((LARGE,),))",
            "partial(rpc.remote, to, torch.clone, args=(large,))",
        ),
    },
    "rpc/observers": {
        "one random stream for all": (
            "generator=self.streams[n]",
            "generator=self.streams[0]",
        ),
        "one pole for all": (
            "(rref, number, turn * POLES + number) for",
            "(rref, number, turn * POLES) for",
        ),
    },
    "rpc/batched": {
        "the promise of the step before": (
            "asked, desk.asked, desk.answers = desk.asked, {}, torch.futures.Future()",
            "asked, desk.asked = desk.asked, {}",
        ),
        "a batch that forgets a pole": (
            "promise.set_result(desk.agent.choose(asked))",
            "promise.set_result(desk.agent.choose(asked) | {0: 0})",
        ),
    },
    "rpc/guest": {
        "the guest stays": (
            "    rpc.shutdown()  # in such",
            "    rank or rpc.shutdown()  # in such",
        ),
        "every worker waits for the guest": (
            'init_rpc(f"worker{rank}", rank=rank,',
            'init_rpc(f"worker{rank}", rank=rank, world_size=world_size,',
        ),
    },
    "rpc/chain": {
        "skip a worker, on 2 ranks": (
            '(me + 1) % world_size}", passes_on',
            '(me + 2) % world_size}", passes_on',
        ),
        "a promise that nobody keeps": ("        future.set_result(total + me)\n", ""),
    },
    "rpc/endpoint": {
        "a collective without the parcel": (
            'parcels = [Parcel("a broadcast") if rank == 0 else None]',
            'parcels = ["a broadcast" if rank == 0 else None]',
        ),
        "the parcel is never opened": (
            "return leave_note, (self.text,)",
            "return str, (self.text,)",
        ),
    },
    "old_pages/tutorial_2017": {
        "only the old collectives count": (
            "return 6 + len(found) + 1, 6",
            "return 6, 6",
        ),
        "a collective brings another number": (
            "    dist.all_to_all_single(cells, mine)",
            "    # dist.all_to_all_single(cells, mine)",
        ),
    },
    "old_pages/rings": {
        "the ring of 2017 sends something": (
            "(torch.zeros_like(send) for _ in range(3))",
            "(torch.ones_like(send) for _ in range(3))",
        ),
        "the corrected ring adds what it sent": (
            "        total += arrives\n",
            "        total += leaves\n",
        ),
    },
    "old_pages/course_2022": {
        "saving after the epoch": (
            "        torch.save(epochs, file)\n        epochs += 1",
            "        epochs += 1\n        torch.save(epochs, file)",
        ),
        "a sampler that knows the epoch": (
            "{tuple(sampler) for _ in range(3)}",
            "{tuple(sampler) for e in range(3) if not sampler.set_epoch(e)}",
        ),
    },
    "old_pages/course_2022_files": {
        "two machines, and global rank 0 writes": (
            "if local_ranks[r] == 0]",
            "if r == 0]",
        ),
        "rank 0 downloads for all": (
            "            download_url(",
            "            rank or download_url(",
        ),
    },
    "old_pages/course_2022_alone": {
        "the module is tested, not the wrapper": (
            "                ddp(batch)\n",
            "                ddp.module(batch)\n",
        ),
        "the test with gradients": ("torch.no_grad(), ", ""),
    },
    "old_pages/course_2022_spawn": {
        "the child finds its meeting point": (
            "MASTER_PORT=sys.argv[1])",
            'MASTER_PORT=sys.argv[1], TORCHELASTIC_USE_AGENT_STORE="")',
        ),
    },
    "old_pages/note_2021": {
        "the models stay apart": (
            "told(line(seed=rank).module.weight.item())",
            "told(rank)",
        ),
        "the ranks print one loss": (
            "torch.arange(1.0, 6.0) + 5 * rank",
            "torch.arange(1.0, 6.0)",
        ),
    },
    "old_pages/guides": {
        "one optimizer for all epochs": (
            "return train(2, 1), train(3)",
            "return train(3), train(3)",
        ),
        "the ranks make the same call": (
            "all_reduce if rank == 0 else broadcast",
            "all_reduce",
        ),
    },
    "old_pages/overview_2020": {
        "what came later is not counted": ("return 3 + sum(", "return 3 + 0 * sum("),
    },
    "scale/road": {
        "the optimizer is cut twice": (
            "t.states * part / c.shard, 0",
            "t.states * part / c.shard / c.data, 0",
        ),
        "a layer is lost": (
            "layers = ceil(t.layers / c.pipeline)",
            "layers = ceil(t.layers / c.pipeline) - 1",
        ),
    },
    "tune/pretrain": {
        "it hardly trains": ("lr=1e-2", "lr=1e-5"),
        "what is written is not what was trained": (
            "            write(model, folder)\n",
            "            write(Llama().to(device), folder)\n",
        ),
    },
    "tune/load": {
        "the buffer is never filled": (
            "    model.fill_buffers()  # they are in no file\n",
            "    model.model.rotary_emb.inv_freq.zero_()\n",
        ),
        "the files are not read": (
            "    dcp.load(weights, storage_reader=HuggingFaceStorageReader(folder), "
            "planner=count)\n",
            "    [w.data.normal_(std=0.1) for w in weights.values()]\n",
        ),
    },
    "tune/train": {
        "the mean of means": (
            'y.flatten(), reduction="sum")\n'
            "        # fully_shard averages over ranks: times their number, this is "
            "a sum.\n        (loss * dist.get_world_size() / tokens).backward()\n"
            "        total += loss.detach()\n",
            "y.flatten())\n        (loss / len(micro_batches)).backward()\n"
            "        total += loss.detach() * tokens / dist.get_world_size() / 2\n",
        ),
        "this rank's tokens only": (
            "    dist.all_reduce(tokens)  # every rank now holds the number of all "
            "ranks' tokens\n",
            "",
        ),
        "exported in float32": ("w.detach().bfloat16()", "w.detach()"),
        "the files are another step's": (
            "        export(model, out)\n",
            "        fill(model, folder)\n        export(model, out)\n"
            "        train(model, read(folder).to(kind), mesh)\n",
        ),
    },
    "tune/lora": {
        "the frequencies are rounded, too": (
            "        model.model.rotary_emb.float()  # a rounded frequency would turn "
            "too far\n",
            "",
        ),
        "B begins with other numbers than zeros": ("w.zero_()", "w.normal_()"),
        "merged without the scale": (
            "module.weight += SCALE * (module.lora_B @ module.lora_A)",
            "module.weight += module.lora_B @ module.lora_A",
        ),
        "not merged": ("    merge(model)\n", ""),
    },
    "tune/resume": {
        "AdamW's averages are left behind": (
            "    dcp.load(state, checkpoint_id=folder)  # each rank reads its own "
            "rows\n",
            '    state.pop("optimizer")\n'
            "    averages = get_state_dict(model, optimizer)[1]\n"
            "    dcp.load(state, checkpoint_id=folder)\n",
        ),
        "the steps are taken again": ('return state["done"]', "return 0"),
    },
    "sharding/fully_shard": {
        "a sum over rows, not their mean": (
            "        loss.backward()\n",
            "        (len(x) * loss).backward()\n",
        ),
        "every rank feeds the first rank's rows": (
            "tensor.chunk(mesh.size())[mesh.get_rank()]",
            "tensor.chunk(mesh.size())[0]",
        ),
    },
    "sharding/recipe": {
        "the last micro-batch is not reduced": (
            "is_last = i == len(micro_batches) - 1",
            "is_last = i == len(micro_batches)",
        ),
        "the norm is one rank's own": (
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
            "    return mean, norm.full_tensor().item()\n",
            "    own = [p.grad.to_local().norm() for p in model.parameters()]\n"
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
            "    return mean, torch.stack(own).norm().item()\n",
        ),
        "the loss is in bf16": ("mp_policy=to_float32", "mp_policy=policy"),
        "nothing computes in bf16": ("param_dtype=half, ", ""),
        "the buffer is never filled": (
            "    model.fill_buffers()  # they are in no state_dict\n",
            "    model.waves.zero_()\n",
        ),
        "what is saved shares memory with what trains on": (
            "        if not saved and number + 1 == SAVED_AFTER:",
            "        if not saved and number + 1 == SAVED_AFTER + 1:",
        ),
        "the optimizer's state is left behind": (
            "dcp.load(state, checkpoint_id=folder)",
            'dcp.load({k: state[k] for k in ("model", "done")}, checkpoint_id=folder)',
        ),
    },
    "sharding/memory": {
        "a block is recomputed with other numbers": (
            "(checkpoint, layer.forward, use_reentrant=False)",
            "(checkpoint, layer.norm1.forward, use_reentrant=False)",
        ),
        "nothing is recomputed": (
            "nets[name] = shard(net, mesh, **options)",
            "nets[name] = shard(build(mesh), mesh, **options)",
        ),
    },
    "sharding/hybrid": {
        "replicas see the same rows": (
            "[mesh.get_rank()]",
            "[mesh.get_rank() % (mesh.size() // 2)]",
        ),
        "the mesh is transposed, on 4 ranks": (
            'square.get_local_rank("shard")',
            'square.get_local_rank("replicate")',
        ),
    },
    "pipeline/plan": {
        "a backward needs nothing of the stage behind": (
            '    behind = [(stage + 1, "I", i)] if stage < stages - 1 else []',
            "    behind = []",
        ),
        "naps of half a unit": (
            "time.sleep(UNIT * units(action))",
            "time.sleep(UNIT * units(action) / 2)",
        ),
    },
    "pipeline/interleaved": {
        "laps in the same order on the way back": (
            'lap = lap if what == "F" else STAGES_PER_RANK - 1 - lap',
            "lap = 0 + lap",
        ),
    },
    "pipeline/train": {
        "relu is forgotten on the way back": (
            "grad = grad * (out > 0)",
            "grad = grad * 1",
        ),
        "the last micro-batch's gradient alone": (
            "self.grad += x.T @ grad",
            "self.grad = x.T @ grad",
        ),
    },
    "pipeline/library": {
        "gradients of micro-batches are not averaged": (
            "loss_fn=F.mse_loss)",
            "loss_fn=F.mse_loss, scale_grads=False)",
        ),
    },
    "pipeline/tied": {
        "each end follows its own use of the weight": (
            "    sum_the_tied(part, ends)\n",
            "",
        ),
        "blocks under numbers of their own": (
            "{str(n): whole.blocks[n] for n in range(*edges)}",
            "{str(n - edges[0]): whole.blocks[n] for n in range(*edges)}",
        ),
    },
    "tensor/conjugate": {
        "no sum in f": ("        return all_reduce(grad)\n", "        return grad\n"),
        "a sum in g, on the way back too": (
            "        return grad\n",
            "        return all_reduce(grad)\n",
        ),
    },
    "tensor/vocabulary": {
        "the output layer without f": (
            "    net.head.register_forward_pre_hook("
            "lambda _, inputs: Enter.apply(*inputs))\n",
            "",
        ),
        "each rank subtracts its own largest logit": (
            "largest = all_reduce(logits.detach().amax(-1), dist.ReduceOp.MAX)",
            "largest = logits.detach().amax(-1)",
        ),
    },
    "tensor/sequence": {
        "all ranks begin at position 0": (
            "at[0] + dist.get_rank() * len(at[0])",
            "at[0] + 0 * len(at[0])",
        ),
        "a share is thought a sum": (
            "    dist.reduce_scatter(mine, positions)",
            "    mine.copy_(positions[dist.get_rank()])",
        ),
    },
    "tensor/dropout": {
        "a mask for each rank, outside": (
            "seeds = SEED, SEED + 1 + rank",
            "seeds = SEED + 1000 + rank, SEED + 1 + rank",
        ),
        "one mask for all ranks, inside": (
            "seeds = SEED, SEED + 1 + rank",
            "seeds = SEED, SEED + 1",
        ),
    },
    "sharding/zero_calls": {
        "only rank 0's numbers count": (
            "lambda: dist.all_reduce(flat)",
            "lambda: dist.broadcast(flat, 0)",
        ),
        "each rank cuts its own shard out, and nothing is summed": (
            "dist.reduce_scatter_tensor(shard, flat)",
            "shard.copy_(flat.chunk(world_size)[rank])",
        ),
    },
    "sharding/zero1": {
        "past DDP": (
            "loss_of(self.ddp(tokens), targets)",
            "loss_of(self.model(tokens), targets)",
        ),
        "all ranks take the same samples": (
            "each[rank::world_size] for each in samples",
            "each[:SAMPLES] for each in samples",
        ),
        "all ranks own the first shard": ("[dist.get_rank()]\n", "[0]\n"),
        "the others' new weights are not fetched": (
            "        self.adam.zero_grad()\n        for unit in self.units:\n"
            "            unit.gather()\n",
            "        self.adam.zero_grad()\n",
        ),
        "the sum over ranks for their mean": (
            "dist.get_world_size(), -1).mean(0)",
            "dist.get_world_size(), -1).sum(0) * 0.01",
        ),
    },
    "sharding/zero2": {
        "nothing is reduced": (
            "reduce_scatter(gradients)",
            "gradients.chunk(dist.get_world_size())[dist.get_rank()]",
        ),
        "a micro-batch early: the first gradient reduces the unit": (
            "        if self.made % len(self.weights):\n",
            "        if (self.made - 1) % len(self.weights):\n",
        ),
    },
    "sharding/zero3": {
        "the weights of the step before": (
            "        dist.all_gather_into_tensor(self.flat, self.shard.detach())\n",
            '        self.old = getattr(self, "old", self.shard.detach().clone())\n'
            "        dist.all_gather_into_tensor(self.flat, self.old)\n",
        ),
        "a block is not freed after backward": (
            "        self.free()  # the unit's backward is over\n",
            "",
        ),
    },
    "tensor/library": {
        "embedding and head are two weights": (
            "    net.head.weight = net.tokens.weight\n",
            "",
        ),
        "each rank loads another seed": (
            "    torch.manual_seed(0)  # the same",
            "    torch.manual_seed(dist.get_rank())  # the same",
        ),
    },
    "tensor/mesh": {
        "the dimensions are exchanged": (
            'shape, names = (world_size // inner, inner), ("data", "tensor")',
            'shape, names = (inner, world_size // inner), ("tensor", "data")',
        ),
        "the sum is that of all ranks": (
            "dist.all_reduce(total, group=line.get_group())",
            "dist.all_reduce(total)",
        ),
    },
    "tensor/two_d": {
        "both halves of the batch are the same, on 4 ranks": (
            "t.chunk(turns)[turn]",
            "t.chunk(turns)[0]",
        ),
        "the norms are not in the plan, on 4 ranks": (
            '        "blocks.*.norm1": Whole(),\n',
            "",
        ),
        "an f for each of query, key and value, on 4 ranks": (
            "cut(uncut(device), mesh, shared_input())",
            "cut(uncut(device), mesh, plan())",
        ),
        "the ranks of a tensor group see different rows, on 4 ranks": (
            'turn, turns = mesh["data"].get_local_rank(), mesh["data"].size()',
            "turn, turns = rank, world_size",
        ),
    },
    "sharding/events": {
        "nobody looks ahead": (
            "set_modules_to_forward_prefetch([following])",
            "set_modules_to_forward_prefetch([])",
        ),
        "freed although it should stay": (
            "models.append(shard(build(mesh), mesh, reshard_after_forward=False))",
            "models.append(shard(build(mesh), mesh))",
        ),
    },
    "rewards/alone": {
        "log-probabilities of the prompt": (
            "log_p.gather(2, rows[:, DIGITS:, None])",
            "log_p.gather(2, rows[:, :DIGITS, None])",
        ),
        "away from the better answers": ("loss = -torch.min(", "loss = torch.min("),
    },
    "rewards/teams": {
        "generators keep their first weights": (
            "        refresh(teams, rank, policy)\n",
            "",
        ),
        "each trainer learns alone": (
            "DDP(policy, process_group=teams.train_group)",
            "policy",
        ),
        "all generators answer the same prompts, on 4 ranks": (
            "tensor_split(len(teams.generators))[rank]",
            "tensor_split(len(teams.generators))[0]",
        ),
    },
    "rewards/behind": {
        "fresh weights, after all": ("        if not behind:\n", "        if True:\n"),
        "two steps behind": ("if behind and step:", "if behind and step > 1:"),
    },
    "rewards/stale": {
        "the newest weights answer": ("generate(kept[0], ", "generate(kept[-1], "),
        "one age for all": ("deque(maxlen=age + 1)", "deque(maxlen=5)"),
    },
}
"""By program: what each mistake is called, and what it puts in place of what."""

TWO_NODES = (
    "less/two_levels",
    "nodes/who",
    "old_pages/course_2022_files",
    "tensor/mesh",
)
"""Programs whose mistakes need two nodes, of two ranks each."""
# They are killed, start processes, or leave threads of RPC behind when they fail.
ALONE = tuple(name.removesuffix(".py") for name in (*RESTARTS, *ARGUMENTS))
ALONE += ("old_pages/course_2022_spawn", "old_pages/tutorial_2017", "rpc/", *TWO_NODES)
NOTICED = ("exception", "timeout")


def ranks_of(program: str, name: str) -> int:
    """Return on how many ranks, of each node, a mistake is planted."""
    if told := re.search(r", on (\d) ranks$", name):
        return int(told[1])
    return 2 if program in TWO_NODES else 3


def planted(program: str, name: str, folder: Path) -> Path:
    """Write a program with a mistake in it; return its path."""
    old, new = MISTAKES[program][name]
    path = variant(program_file(program), old, new, folder=folder / "variant")
    return smaller(Path(path), folder / "smaller")


def program_file(program: str) -> Path:
    return ROOT / "ddp_lab" / f"{program}.py"


FIRST = {Path(program).parent: program for program in reversed(MISTAKES)}.values()
"""The first program of each folder."""


def cases(programs: list[str]) -> list:
    """Return each program with its first mistake, and with the others."""
    found = []
    for program in programs:
        by_ranks: dict[int, list[str]] = {}
        first, *others = MISTAKES[program]
        for name in others:
            by_ranks.setdefault(ranks_of(program, name), []).append(name)
        marks, name = () if program in FIRST else FULL, f"{program}: {first}"
        found.append(pytest.param(program, [first], id=name, marks=marks))
        for names in by_ranks.values():
            more = f"{program}: {len(names)} more"
            found.append(pytest.param(program, names, id=more, marks=FULL))
    return found


@pytest.mark.parametrize(
    "program, names",
    cases([p for p in MISTAKES if not p.startswith(ALONE)]),
)
def test_mistakes_are_caught_and_the_program_is_right(program, names, tmp_path):
    paths = {
        planted(program, name, tmp_path / str(number)): name
        for number, name in enumerate(names)
    }
    right = smaller(program_file(program), tmp_path / "right")
    ranks = ranks_of(program, names[0])
    ended, printed = tell_apart(ranks, [*paths], [right], timeout=20)
    assert not ended.pop(right), printed
    unnoticed = {paths[p]: kind for p, kind in ended.items() if kind not in NOTICED}
    assert not unnoticed, printed


@pytest.mark.parametrize(
    "program, names", cases([p for p in MISTAKES if p.startswith(ALONE)])
)
def test_the_mistake_is_caught(program, names, tmp_path):
    ranks, file = ranks_of(program, names[0]), f"{program}.py"
    arguments = ARGUMENTS.get(file, "")
    if "{data}" in arguments:
        arguments = arguments.format(data=prepare().root)
    again, nodes = RESTARTS.get(file, ""), 1 + (program in TWO_NODES)
    options = dict(timeout=20, expect_failure=True)
    for number, name in enumerate(names):
        path = planted(program, name, tmp_path / str(number))
        if again or nodes > 1:
            command = f"--nnodes {nodes} --nproc-per-node {ranks} {again} {path}"
            run = torchrun(f"{command} {arguments}", **options)
        else:
            run = launch(ranks, path, arguments, **options)
        assert run.failure.kind in NOTICED, f"{name}: {run.failure.report()}"


def test_every_program_has_a_planted_mistake():
    programs = {name_of(path).removesuffix(".py") for path in PROGRAMS}
    programs -= {name for name in programs if name.startswith("clinic/")}  # sick
    exercises = {n for n in programs if "/exercise" in n or "/puzzle" in n}
    # nodes/spawn.py runs under plain python, and test_programs.py breaks it;
    # ddp/single.py is what others are compared with.
    unplanted = {"nodes/spawn", "ddp/single"}
    assert programs - exercises - unplanted == MISTAKES.keys()
