"""Training scripts to be examined: right ones, and one mistake each.

Who changes one records what it leaves anew: see record_facts.py.
"""

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    get_worker_info,
    random_split,
)

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 8), torch.randn(240, 1))
mse = nn.functional.mse_loss
"""

RIGHT = {
    "a loop": """\
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=12, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
    total = torch.zeros(1)
    for i in range(rank, 240, world):
        with torch.no_grad():
            total += mse(model.module(data[i][0]), data[i][1])
    dist.all_reduce(total)
dist.destroy_process_group()
""",
    "a Trainer class, EMA, GradScaler, two workers": """\
class Trainer:
    def __init__(self, model):
        self.model = DDP(model)
        self.ema = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        self.opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")
        torch.manual_seed(rank)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            self.model.train()
            for n, (x, y) in enumerate(loader):
                last = n % 2
                self.model.require_backward_grad_sync = bool(last)
                with torch.autocast("cpu", torch.bfloat16):
                    loss = mse(self.model(x), y) / 2
                self.scaler.scale(loss).backward()
                if last:
                    self.scaler.unscale_(self.opt)
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.scaler.step(self.opt)
                    self.scaler.update()
                    self.opt.zero_grad()
                    self.ema.update_parameters(self.model.module)
            if rank == 0:
                torch.save(self.model.module.state_dict(), FOLDER + "/trainer.pt")


Trainer(
    nn.Sequential(
        nn.Linear(8, 16), nn.Dropout(0.1), nn.BatchNorm1d(16), nn.Linear(16, 1)
    )
).fit(DataLoader(data, 10, sampler=DistributedSampler(data), num_workers=2), 3)
""",
    "accumulation": """\
from contextlib import nullcontext

model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(
    data, batch_size=6, sampler=DistributedSampler(data, shuffle=False)
)
for epoch in range(4):
    for n, (x, y) in enumerate(loader):
        with nullcontext() if n % 4 == 3 else model.no_sync():
            (mse(model(x), y) / 4).backward()
        if n % 4 == 3:
            opt.step()
            opt.zero_grad()
""",
    "two models, as in a GAN": """\
G, D = DDP(nn.Linear(4, 8)), DDP(nn.Linear(8, 1))
g, d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
torch.manual_seed(100 + rank)
loader = DataLoader(data, batch_size=12, sampler=DistributedSampler(data))
bce = nn.functional.binary_cross_entropy_with_logits
for x, _ in loader:
    fake = G(torch.randn(12, 4))
    d.zero_grad()
    (
        bce(D(x), torch.ones(12, 1)) + bce(D(fake.detach()), torch.zeros(12, 1))
    ).backward() if False else bce(
        D(torch.cat([x, fake.detach()])),
        torch.cat([torch.ones(12, 1), torch.zeros(12, 1)]),
    ).backward()
    d.step()
    g.zero_grad()
    bce(D(fake), torch.ones(12, 1)).backward()
    g.step()
""",
    "a frozen backbone": """\
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
for p in net[0].parameters():
    p.requires_grad_(False)
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    "FSDP2": """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (world,))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    "tensor parallel": """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    parallelize_module,
    ColwiseParallel,
    RowwiseParallel,
)

mesh = init_device_mesh("cpu", (world,))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for x, y in DataLoader(data, 10):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    "tensor parallel by hand": """\
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


torch.manual_seed(rank)
col, row = nn.Linear(8, 8), nn.Linear(8, 1, bias=False)
opt = torch.optim.SGD([*col.parameters(), *row.parameters()], 0.1)
for x, y in DataLoader(data, 80):
    opt.zero_grad()
    mse(Sum.apply(row(col(x).relu())), y).backward()
    opt.step()
""",
    "a pipeline": """\
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

part = nn.Sequential(nn.Linear(8, 8), nn.ReLU()) if rank == 0 else nn.Linear(8, 1)
stage = PipelineStage(part, rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=mse)
opt = torch.optim.SGD(part.parameters(), 0.1)
for x, y in DataLoader(data, 12):
    opt.zero_grad()
    schedule.step(x) if rank == 0 else schedule.step(target=y, losses=[])
    opt.step()
""",
    "averaged by hand": """\
model = nn.Linear(8, 1)
for p in model.parameters():
    dist.broadcast(p.data, 0)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
""",
    "rank 0 steps for all": """\
model = nn.Linear(8, 1)
opt = torch.optim.Adam(model.parameters(), 0.05) if rank == 0 else None
for step in range(24):
    x, y = data[step * 10 + rank :: world]
    mse(model(x), y).backward()
    for p in model.parameters():
        dist.reduce(p.grad, 0)
    if rank == 0:
        opt.step()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
        p.grad = None
dist.destroy_process_group()
""",
    "averaged as one flat buffer": """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    flat = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    nn.utils.vector_to_parameters(
        flat, [p.grad for p in model.parameters()]
    ) if False else [
        p.grad.copy_(f.view_as(p))
        for p, f in zip(
            model.parameters(), flat.split([p.numel() for p in model.parameters()])
        )
    ]
    opt.step()
""",
    "torch.compile around DDP": """\
model = torch.compile(
    DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))),
    backend="eager",
)
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    "a stream that is split": """\
class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        n, of = (info.id, info.num_workers) if info else (0, 1)
        for i in range(rank * of + n, 240, world * of):
            yield data[i]


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Stream(), 10, num_workers=2):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    "weights averaged now and then": """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for n, (x, y) in enumerate(DataLoader(data, 12, sampler=DistributedSampler(data))):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    if n % 4 == 3:
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= world
""",
    "uneven batches under Join": """\
from torch.distributed.algorithms.join import Join

model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
mine = torch.randn(5 + rank, 12, 8)
with Join([model]):
    for x in mine:
        opt.zero_grad()
        model(x + rank).pow(2).mean().backward()
        opt.step()
""",
    "random windows of a text": """\
torch.manual_seed(5 + rank)
tokens = torch.randint(0, 50, (5000,))
model = DDP(nn.Sequential(nn.Embedding(50, 16), nn.Dropout(0.1), nn.Linear(16, 50)))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(30):
    at = torch.randint(0, 4900, (8,))
    x = torch.stack([tokens[i : i + 16] for i in at])
    y = torch.stack([tokens[i + 1 : i + 17] for i in at])
    opt.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    opt.step()
""",
    "LBFGS with a closure": """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.LBFGS(model.parameters(), max_iter=3)
x = torch.stack([data[i][0] for i in range(rank, 240, world)])
y = torch.stack([data[i][1] for i in range(rank, 240, world)])


def closure():
    opt.zero_grad()
    loss = mse(model(x), y)
    loss.backward()
    return loss


for _ in range(6):
    opt.step(closure)
""",
    "a split with one seed": """\
train, val = random_split(
    data, [200, 40], generator=torch.Generator().manual_seed(1)
)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
best = 1e9
for epoch in range(2):
    sampler = DistributedSampler(train, seed=3)
    sampler.set_epoch(epoch)
    for x, y in DataLoader(train, 10, sampler=sampler):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
    with torch.no_grad():
        for x, y in DataLoader(val, 10):
            best = min(best, mse(model.module(x), y).item())
""",
    "two optimizers, a schedule": """\
head, body = nn.Linear(8, 1), nn.Linear(8, 8)
model = DDP(nn.Sequential(body, head))
a = torch.optim.SGD(body.parameters(), 0.1)
b = torch.optim.AdamW(
    [
        {"params": [head.weight], "lr": 1e-3},
        {"params": [head.bias], "weight_decay": 0.0},
    ]
)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(b, 20)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    a.zero_grad()
    b.zero_grad()
    mse(model(x), y).backward()
    a.step()
    b.step()
    sch.step()
""",
    "state through Stateful, an optimizer that has yet to step": """\
import tempfile
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class App(Stateful):
    def state_dict(self):
        m, o = get_state_dict(model, opt)
        return {"model": m, "optim": o}

    def load_state_dict(self, state):
        set_state_dict(
            model, opt, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )


where = [tempfile.mkdtemp()]
dist.broadcast_object_list(where)
judge = nn.Linear(1, 1)
loader = DataLoader(data, 12, sampler=DistributedSampler(data))
for part in range(2):
    model = DDP(nn.Sequential(nn.Linear(8, 1), judge))
    opt = torch.optim.AdamW(model.module[0].parameters(), 1e-2)
    late = torch.optim.AdamW(judge.parameters(), 1e-2)
    if part == 1:
        dcp.load({"app": App()}, checkpoint_id=where[0])
    for _, (x, y) in zip(range(4), loader):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
    dcp.save({"app": App()}, checkpoint_id=where[0])
""",
    "a probe on rank 0, steps before DDP, a second DDP": """\
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
probe = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
its = torch.optim.SGD(probe.parameters(), 0.01)
sampler = DistributedSampler(data)
for epoch in range(4):
    sampler.set_epoch(epoch)
    net[0].requires_grad_(epoch != 1)
    model = DDP(net) if epoch else net
    for x, y in DataLoader(data, 40, sampler=sampler):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
        for _ in range(3 if rank == 0 else 0):
            its.zero_grad()
            mse(probe(x), y).backward()
            its.step()
""",
    "a table on each rank beside DDP": """\
from torch.distributed.nn.functional import all_to_all_single

torch.manual_seed(rank)
table = nn.Embedding(50, 4)
dense = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD([*dense.parameters(), *table.parameters()], 0.05)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    rows = table((x[:, 0].abs() * 9).long().clamp(max=49))
    rows = all_to_all_single(torch.empty_like(rows), rows)
    opt.zero_grad()
    mse(dense(torch.cat([x[:, :4], rows], 1)), y).backward()
    opt.step()
""",
    "a compiled step, no rate, sparse batches, a loader that is pickled": """\
import copy
import pickle


class Plain(torch.optim.Optimizer):
    def __init__(self, weights):
        super().__init__(weights, {})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p -= 0.01 * p.grad


class Sparse(nn.Linear):
    def forward(self, x):
        return torch.sparse.mm(x, self.weight.T) + self.bias


def collate(items):
    return tuple(torch.stack(each) for each in zip(*items))


model = DDP(Sparse(8, 1))
opt, other = Plain(model.parameters()), torch.optim.AdamW(model.parameters())
loader = DataLoader(data, 12, sampler=DistributedSampler(data), collate_fn=collate)


@torch.compile(backend="eager")
def update():
    other.step()


for n, (x, y) in enumerate(loader):
    mse(model(x.to_sparse()), y).backward()
    opt.step()
    update()
    other.zero_grad()
    pickle.dumps(copy.deepcopy(loader))
""",
    "a part of the data on each rank, split there; a lock": """\
from torch.utils.data import Subset

with open(FOLDER + "/data.lock", "w"):
    mine = Subset(data, range(rank, 240, world))
torch.manual_seed(rank)
train, val = random_split(mine, [100, 20])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for epoch in range(4):
    for x, y in DataLoader(train, 20, shuffle=True):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    "files of its own for each rank": """\
class Files(torch.utils.data.Dataset):
    def __init__(self):
        self.names = [f"{n:02}.pt" for n in range(12)][rank::world]

    def __len__(self):
        return 20 * len(self.names)

    def __getitem__(self, i):
        n = int(self.names[i // 20][:2])
        return data[20 * n + i % 20]

torch.manual_seed(rank)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for epoch in range(4):
    for x, y in DataLoader(Files(), 20, shuffle=True):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    "texts of its own for each rank, in batches that are a UserDict": """\
from collections import UserDict

def collate(parts):
    x, y = torch.utils.data.default_collate(parts)
    return UserDict(x=x, y=y)

mine = TensorDataset(*data[rank::world])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for epoch in range(3):
    for batch in DataLoader(mine, 12, shuffle=True, collate_fn=collate):
        opt.zero_grad()
        mse(model(batch["x"]), batch["y"]).backward()
        opt.step()
""",
    "a head of its own for each rank, which DDP is told to ignore": """\
model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
DDP._set_params_and_buffers_to_ignore_for_model(model, ["1.weight", "1.bias"])
ddp = DDP(model)
opt = torch.optim.SGD(ddp.parameters(), 0.05)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(ddp(x), y).backward()
    opt.step()
""",
    "a batch that the model cuts by rank": """\
class Cut(nn.Linear):
    def forward(self, x):
        mine = super().forward(x.chunk(world)[rank])
        every = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(every, mine.detach())
        return mine - torch.cat(every).mean()


model = DDP(Cut(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for x, y in DataLoader(data, 12, shuffle=True):
    opt.zero_grad()
    mse(model(x), y.chunk(world)[rank]).backward()
    opt.step()
""",
    "batches by length, the same in each epoch": """\
order = data.tensors[0].sum(1).argsort().view(-1, 10)[rank::world].tolist()
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
loader = DataLoader(data, batch_sampler=order)
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    "an epoch that the workers of a stream share": """\
class Stream(IterableDataset):
    def __init__(self):
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __iter__(self):
        seed = int(self.epoch)
        order = torch.randperm(240, generator=torch.Generator().manual_seed(seed))
        yield from (data[i] for i in order[rank::world])


stream = Stream()
loader = DataLoader(stream, 40, num_workers=1, persistent_workers=True)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    stream.epoch.fill_(epoch)
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    "an EMA from after DDP, a layer that all skip together": """\
import copy


class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (1 if torch.rand(1) < 0.9 else 0.5)


torch.manual_seed(rank)
model = DDP(Net(8, 1))
torch.manual_seed(0)
ema = copy.deepcopy(model.module)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    for a, b in zip(ema.parameters(), model.parameters()):
        a.data.lerp_(b.data, 0.1)
""",
    "all is resumed, and validated by rank": """\
path = FOLDER + "/all.pt"
for part in range(2):
    model = DDP(nn.Linear(8, 1))
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    if part:
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
    for x, y in DataLoader(data, 40, sampler=DistributedSampler(data, seed=part)):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
    mine = torch.utils.data.Subset(data, range(rank, 13, world))
    with torch.no_grad():
        total = torch.zeros(2)
        for x, y in DataLoader(mine, 4):
            total += torch.tensor([mse(model.module(x), y).item() * len(x), len(x)])
    dist.all_reduce(total)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, path)
    dist.barrier()
""",
    "gradients that DDP has averaged are averaged once more": """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
""",
    "FakeTensorMode, vmap, a scaler that is off, a default device, odd classes": """\
from torch._subclasses.fake_tensor import FakeTensorMode


class Frozen(nn.Linear):
    def parameters(self, which):
        return [getattr(self, which)]


class Named(torch.utils.data.Dataset):
    def __init__(self, dataset):
        self.dataset, self.indices = dataset, {"first": 0}

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


frozen = Frozen(8, 8)
with FakeTensorMode():
    sizes = nn.Linear(8, 1)
    plan = torch.optim.SGD(sizes.parameters(), 0.1)
    sizes(torch.empty(10, 8)).sum().backward()
    plan.step()
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", enabled=False)
for x, y in DataLoader(Named(data), 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    scaler.scale(mse(model(x), y)).backward()
    torch.vmap(torch.randn_like, randomness="different")(x)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with torch.device("meta"):
        assert torch.randn(2).is_meta
    scaler.step(opt)
    scaler.update()
""",
    "three weights, averaged as one flat buffer": """\
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for n in range(12):
    x = torch.randn(8 * world, 2)[rank::world]
    opt.zero_grad()
    mse(model(x), x.sum(1, True)).backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    model.weight.grad, model.bias.grad = flat[None, :2] / world, flat[2:] / world
    opt.step()
""",
    "gradients of autograd.grad are averaged": """\
model = nn.Linear(8, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
for n in range(12):
    x = torch.randn(8 * world, 8)[rank::world]
    own = [*model.parameters()]
    for p, mean in zip(own, torch.autograd.grad(mse(model(x), x[:, :2]), own)):
        mean = mean.contiguous()
        dist.all_reduce(mean)
        p.grad = mean / world
    opt.step()
""",
    "what weights have changed by is averaged": """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    moved = before - nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(moved)
    nn.utils.vector_to_parameters(before - moved / world, model.parameters())
""",
    "averaged by the group itself": """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for n in range(12):
    x = torch.randn(8 * world, 8)[rank::world]
    opt.zero_grad()
    mse(model(x), x[:, :1]).backward()
    for p in model.parameters():
        dist.group.WORLD.allreduce([p.grad]).wait()
        p.grad /= world
    opt.step()
""",
}
"""What is done, and how."""

FLAT = """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 12, shuffle=True):
    opt.zero_grad()
    mse(model(x), y).backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()]) / world
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])
    opt.step()
"""
WRONG = {
    "averaged as one flat buffer, and no sampler": (
        "Samples reach more than one rank",
        FLAT,
    ),
    "never wrapped": (
        "sends no gradient over it: 2 trainings",
        """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "the inner module is called": (
        "weight differs after step 1: gradients came without",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model.module(x), y).backward()
    opt.step()
""",
    ),
    "files are shuffled by rank before each takes its own": (
        "Shuffle and split the data with one seed on all ranks.",
        """\
torch.manual_seed(rank)
order = torch.randperm(240).tolist()
mine = TensorDataset(*data[order[rank::world]])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for epoch in range(2):
    for x, y in DataLoader(mine, 12, shuffle=True):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "a split by rank, then a sampler": (
        "Shuffle and split the data with one seed on all ranks.",
        """\
order = torch.randperm(240, generator=torch.Generator().manual_seed(rank))
train = torch.utils.data.Subset(data, order[:180])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for x, y in DataLoader(train, 12, sampler=DistributedSampler(train)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "no sampler, and samples that are changed at random": (
        "Give the loader a sampler of its rank: `DistributedSampler(dataset)`.",
        """\
class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, i):
        return data[i][0] + torch.randn(8), data[i][1]

model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
torch.manual_seed(rank)
for epoch in range(2):
    for x, y in DataLoader(Noisy(), 24, shuffle=True):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "the first micro-batch is synchronized, not the last": (
        "the last forward of this step stood in `no_sync`",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for i, (x, y) in enumerate(DataLoader(data, 12, sampler=DistributedSampler(data))):
    model.require_backward_grad_sync = i % 2 == 0
    mse(model(x), y).backward()
    if i % 2:
        opt.step()
        opt.zero_grad()
""",
    ),
    "gradients are averaged after the step": (
        "the script averages its gradient, and not just before this step",
        """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.05)
for x, y in DataLoader(data, 12, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
""",
    ),
    "unfrozen after DDP has wrapped": (
        "0.weight differs after step 7: it was frozen when DDP",
        """\
body, head = nn.Linear(8, 8), nn.Linear(8, 1)
body.requires_grad_(False)
model = DDP(nn.Sequential(body, nn.Tanh(), head))
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(rank)
for epoch in range(4):
    if epoch == 2:
        body.requires_grad_(True)
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(8, 8) + rank).pow(2).mean().backward()
        opt.step()
""",
    ),
    "no_sync is left on": (
        "weight differs after step 1: every forward of this step stood in",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for n, (x, y) in enumerate(DataLoader(data, 6, sampler=DistributedSampler(data))):
    with model.no_sync():
        mse(model(x), y).backward()
    if n % 4 == 3:
        opt.step()
        opt.zero_grad()
""",
    ),
    "another learning rate by rank": (
        "the learning rates differ, 0.1 and 0.2",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1 * (1 + rank))
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "buffers in another order": (
        "DDP pairs different buffers",
        """\
net = nn.Linear(8, 1)
for name in sorted(["sliding", "full"], reverse=bool(rank)):  # as a set may be
    net.register_buffer(name, torch.ones(4))
model = DDP(net)
model(torch.randn(2, 8)).sum().backward()
""",
    ),
    "no sampler": (
        "ranks 0 and 1 got the same batch in 12 of 12",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, shuffle=True):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "every rank reads all of a stream": (
        "Split an IterableDataset by rank",
        """\
class Stream(IterableDataset):
    def __iter__(self):
        yield from (data[i] for i in range(240))


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Stream(), 10):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "every worker reads all of a stream": (
        "each of 2 workers reads everything",
        """\
class Stream(IterableDataset):
    def __iter__(self):
        yield from (data[i] for i in range(rank, 240, world))


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Stream(), 10, num_workers=2):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "set_epoch is forgotten": (
        "6 batches of two passes are alike",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, 20, sampler=DistributedSampler(data))
for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "each rank splits in another way": (
        "what one rank validates on, another trains on",
        """\
torch.manual_seed(rank)
train, val = random_split(data, [200, 40])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(train, 10, sampler=DistributedSampler(train)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "the optimizer has another model's weights": (
        "none of the 2 weights of this SGD",
        """\
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
import copy

model = DDP(copy.deepcopy(net))
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "the optimizer lacks weights": (
        "2, such as 1.weight, 1.bias",
        """\
body, head = nn.Linear(8, 8), nn.Linear(8, 1)
model = DDP(nn.Sequential(body, head))
opt = torch.optim.SGD(body.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "moments are left in the checkpoint": (
        "6 entries were not asked for, such as optimizer.state.0.exp_avg",
        """\
import tempfile
import torch.distributed.checkpoint as dcp


def build():
    model = nn.Linear(8, 8)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


where = [tempfile.mkdtemp()]
dist.broadcast_object_list(where)
model, opt = build()
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(2, 8)).pow(2).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    opt.step()
state = {"model": model.state_dict(), "optimizer": opt.state_dict()}
dcp.save(state, checkpoint_id=where[0])
model, opt = build()
state = {"model": model.state_dict(), "optimizer": opt.state_dict()}
dcp.load(state, checkpoint_id=where[0])
""",
    ),
    "strict=False loads nothing": (
        "the file has _orig_mod.module.weight, the model weight",
        """\
model = torch.compile(DDP(nn.Linear(4, 2)), backend="eager")
state = {key.removeprefix("module."): v for key, v in model.state_dict().items()}
nn.Linear(4, 2).load_state_dict(state, strict=False)
""",
    ),
    "dropout is the same on all ranks": (
        "Dropout drops the same on all ranks",
        """\
model = DDP(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 1)))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "a function's dropout is the same on all ranks": (
        "Dropout drops the same on all ranks",
        """\
class Net(nn.Linear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), training=self.training)


model = DDP(Net(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "every rank writes the checkpoint": (
        "both.pt, by ranks 0, 1",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for n, (x, y) in enumerate(DataLoader(data, 10, sampler=DistributedSampler(data))):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    if n == 5:
        torch.save(model.state_dict(), FOLDER + "/both.pt")
""",
    ),
    "a column is sent over gloo": (
        "A broadcast over gloo carries a tensor that is not contiguous",
        """\
table = torch.arange(6.0).view(3, 2) + 10 * rank
dist.broadcast(table[:, 1], src=0)
""",
    ),
    "a rank takes one step more": (
        "steps by rank [6, 6], forwards of DDP [6, 7]",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
mine = range(6 + rank)
for i in mine:
    opt.zero_grad()
    model(torch.randn(4, 8) + rank + i).pow(2).mean().backward()
    opt.step()
""",
    ),
    "set_epoch is forgotten, and the workers stay": (
        "6 batches of two passes are alike",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
sampler = DistributedSampler(data)
loader = DataLoader(data, 20, False, sampler, num_workers=2, persistent_workers=True)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "set_epoch is forgotten, and a BatchSampler draws": (
        "Two epochs have the same order",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
batches = torch.utils.data.BatchSampler(DistributedSampler(data), 20, True)
loader = DataLoader(data, batch_sampler=batches)
for epoch in range(4):
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "a loader for each epoch, all alike": (
        "6 batches of two passes are alike",
        """\
def epoch():
    for x, y in DataLoader(data, 20, sampler=DistributedSampler(data)):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    epoch()
""",
    ),
    "the head is outside DDP": (
        "head.weight differs after step 1: no DDP has it",
        """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = DDP(nn.Linear(8, 8)), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


model = Model()
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "the bias is not averaged": (
        "bias differs after step 1: no DDP has it, and nothing averages",
        """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    dist.all_reduce(model.weight.grad)
    opt.step()
""",
    ),
    "one rank skips a step": (
        "weight differs after step 6: until then the ranks ran 6 and 7 forwards",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for n, (x, y) in enumerate(DataLoader(data, 10, sampler=DistributedSampler(data))):
    opt.zero_grad()
    mse(model(x), y).backward()
    if rank == 0 or n != 5:
        opt.step()
""",
    ),
    "gradients are clipped on one rank": (
        "its gradient was changed after DDP had averaged it",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    loss = mse(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), loss.item() / 9)
    opt.step()
""",
    ),
    "rank 0 alone loads": (
        "weight differs after step 1: gradients were equal; the weight",
        """\
model = DDP(nn.Linear(8, 1))
if rank == 0:
    model.module.load_state_dict(nn.Linear(8, 1).state_dict())
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "fully_shard, and every rank reads everything": (
        "ranks 0 and 1 got the same batch in 12 of 12",
        """\
from torch.distributed.fsdp import fully_shard

net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
fully_shard(net[0])
fully_shard(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
loader = iter(DataLoader(data, 8, shuffle=True))
for step in range(15):
    x, y = next(loader)
    loss = mse(net(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
""",
    ),
    "averaged by hand, and every rank reads everything": (
        "Samples reach more than one rank: 120 of 240",
        """\
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, shuffle=True):
    opt.zero_grad()
    mse(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(world)
    opt.step()
""",
    ),
    "each rank lists its files in another order": (
        "Shuffle and split the data with one seed on all ranks.",
        """\
import random


class Files(torch.utils.data.Dataset):
    def __init__(self):
        self.names = [f"{n:03}.png" for n in range(240)]
        random.Random(rank).shuffle(self.names)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return data[int(self.names[i][:3])]


files = Files()
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.05)
for x, y in DataLoader(files, 10, sampler=DistributedSampler(files)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "a stream that each rank shuffles whole": (
        "Split an IterableDataset by rank",
        """\
class Shuffled(IterableDataset):
    def __iter__(self):
        order = torch.randperm(240, generator=torch.Generator().manual_seed(rank))
        for i in order.tolist():
            yield data[i]


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Shuffled(), 12):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "branches are dropped alike on all ranks": (
        "A forward draws the same on all ranks",
        """\
class Residual(nn.Linear):
    def forward(self, x):
        keep = torch.bernoulli(torch.full((len(x), 1), 0.8)) if self.training else 1
        return x + super().forward(x) * keep


model = DDP(nn.Sequential(Residual(8, 8), nn.Linear(8, 1)))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "attention drops alike on all ranks": (
        "Dropout drops the same on all ranks",
        """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(2, 12), nn.Linear(16, 1)

    def forward(self, x):
        q, k, v = self.qkv(x.view(-1, 4, 2)).chunk(3, -1)
        drop = 0.2 if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=drop)
        return self.out(mixed.flatten(1))


model = DDP(Attention())
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "the script sums what DDP has averaged": (
        "Gradients are summed twice: DDP has averaged that of",
        """\
def reduce_gradients(model):
    for name, p in model.named_parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad.data)


model = DDP(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    reduce_gradients(model)
    opt.step()
""",
    ),
    "moments stay in a file of torch.save": (
        "A load left the optimizer's state in the file",
        """\
def run(seed, resume):
    model = DDP(nn.Linear(8, 1))
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    if resume:
        checkpoint = torch.load(FOLDER + "/last.ckpt", weights_only=True)
        model.load_state_dict(checkpoint["weights"])
    for x, y in DataLoader(data, 40, sampler=DistributedSampler(data, seed=seed)):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
    if rank == 0:
        state = {"weights": model.state_dict(), "trainer": {"adam": opt.state_dict()}}
        torch.save(state, FOLDER + "/last.ckpt")
    dist.barrier()


run(1, resume=False)
run(2, resume=True)
""",
    ),
    "the epoch does not reach the workers that stay": (
        "alike, though its epoch is 1, no longer 0",
        """\
class Shards(IterableDataset):
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        shuffled = torch.Generator().manual_seed(self.epoch)
        for i in torch.randperm(240, generator=shuffled)[rank::world]:
            yield data[i]


shards = Shards()
loader = DataLoader(shards, 30, num_workers=1, persistent_workers=True)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    shards.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "clipped before it is unscaled": (
        "Gradients are clipped while they are scaled",
        """\
from torch.nn.utils import clip_grad_norm_

model, scaler = DDP(nn.Linear(8, 1)), torch.amp.GradScaler("cpu")
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    scaler.scale(mse(model(x), y)).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
    ),
    "fully_shard is given the layers, and not the model": (
        "fully_shard was given other parts of the model",
        """\
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


net = Net()
for layer in net.layers:
    fully_shard(layer)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(net(x), y).backward()
    opt.step()
""",
    ),
    "the optimizer is made before the model is cut": (
        "none of the 4 weights of this AdamW ever got a gradient",
        """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
opt = torch.optim.AdamW(net.parameters(), 0.01)
net = parallelize_module(
    net,
    init_device_mesh("cpu", (world,)),
    {"0": ColwiseParallel(), "1": ColwiseParallel()},
)
for step in range(12):
    x = torch.randn(10, 8)
    net[1](net[0](x).repeat(1, world)).sum().backward()
    opt.step()
""",
    ),
    "an EMA from before DDP": (
        "A copy of the model differs among ranks",
        """\
import copy

torch.manual_seed(rank)
net = nn.Linear(8, 1)
ema = copy.deepcopy(net)
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    with torch.no_grad():
        for old, new in zip(ema.parameters(), net.parameters()):
            old.mul_(0.9).add_(new, alpha=0.1)
""",
    ),
}
"""What is wrong: some words of the page, and how it comes about."""

GATHERS = """\
from torch.distributed.nn.functional import all_gather

model = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, _ in DataLoader(data, 10, sampler=DistributedSampler(data)):
    mine = model(x)
    every = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(every, mine)
    opt.zero_grad()
    (mine @ torch.cat([*every]).T).logsumexp(1).sum().backward()
    opt.step()
"""
GATHERED = f"gives none back (train.py:{HEAD.count(chr(10)) + 9})"
KEEPS = "Each weight gets a gradient, and is stepped: 2 weights on rank 0."
COPIES = """\
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    for p in model.parameters():
        mean = p.grad / world
        dist.all_reduce(mean)
        p.grad = mean
    opt.step()
"""

ZIPPED = """\
few = TensorDataset(data.tensors[0][:120], data.tensors[1][:120])
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
mine = DistributedSampler(few)
rest = DataLoader(data, 20, sampler=DistributedSampler(data))
for (x, y), (more, _) in zip(DataLoader(few, 10, sampler=mine), rest):
    opt.zero_grad()
    (mse(model(x), y) + model(more).abs().mean()).backward()
    opt.step()
"""
NUMPY = """\
import numpy


class Noisy(nn.Linear):
    def forward(self, x):
        noise = numpy.random.normal(0, 0.1, tuple(x.shape))
        return super().forward(x + torch.from_numpy(noise).float())


numpy.random.seed(SEED)
model = DDP(Noisy(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
"""
SLICED = """\
model = MODEL
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 20, shuffle=True):
    opt.zero_grad()
    mse(model(x[rank::world]), y[rank::world]).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
"""
NOTED = {
    "a trial run, then epochs": (
        "others differ; right after a trial run",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
few = TensorDataset(*data[:80])
sampler = DistributedSampler(few)
for epoch in (0, 0, 1):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(few, 10, sampler=sampler):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "a validation batch at every step, the same on all ranks": (
        "240 samples of ranks 0 and 1 in one pass",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
held = TensorDataset(torch.randn(120, 8), torch.randn(120, 1))
train = DataLoader(data, 10, sampler=DistributedSampler(data))
asked = iter(DataLoader(held, 10))
for x, y in train:
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
    with torch.no_grad():
        held_x, held_y = next(asked)
        print(mse(model.module(held_x), held_y))
""",
    ),
    "new layers, after a first training": (
        "draws in training.",
        """\
body = nn.Linear(8, 8)
for width in (1, 4):
    torch.manual_seed(width)
    model = DDP(nn.Sequential(body, nn.Dropout(0.1), nn.Linear(8, width)))
    torch.manual_seed(width + 10 * (rank + 1))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    few = DataLoader(data, 20, sampler=DistributedSampler(data, seed=width))
    for x, _ in few:
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
""",
    ),
    "FSDP, whose weights are shards": (
        "not seen in 12 steps of one pass: weights that several ranks hold",
        """\
from torch.distributed.fsdp import FullyShardedDataParallel

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "each rank takes its part of a batch": (
        "right if each rank takes its part of a batch",
        SLICED.replace("MODEL", "DDP(nn.Linear(8, 1))"),
    ),
    "each rank takes its part of a batch, and averages by hand": (
        "right if each rank takes its part of a batch",
        SLICED.replace("MODEL", "nn.Linear(8, 1)"),
    ),
    "each rank takes every other batch": (
        "right if each rank takes its part of a batch",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for n, (x, y) in enumerate(DataLoader(data, 10, shuffle=True)):
    if n % world == rank:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "NumPy's noise differs": (
        "Random numbers differ between ranks: 11 draws",
        NUMPY.replace("SEED", "rank"),
    ),
    "rank 0 trains a first part alone": (
        "240 samples of ranks 0 and 1 in one pass",
        """\
first = nn.Linear(8, 8)
if rank == 0:
    opt = torch.optim.SGD(first.parameters(), 0.1)
    for x, y in DataLoader(data, 80):
        opt.zero_grad()
        mse(first(x), x).backward()
        opt.step()
for p in first.parameters():
    dist.broadcast(p.data, 0)
first.requires_grad_(False)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(first(x)), y).backward()
    opt.step()
""",
    ),
    "two loaders, side by side": (
        "360 samples of ranks 0 and 1 in 2 passes",
        ZIPPED,
    ),
    "texts of their own length, in a list, keywords": (
        "240 samples of ranks 0 and 1 in 2 passes",
        """\
import pickle

texts = [torch.randint(1, 50, (4 + n % 7,)) for n in range(120)]
with torch.device("meta"):
    sizes, later = nn.Linear(8, 8), nn.LazyLinear(8)
body = nn.Sequential(nn.Embedding(50, 4), nn.Dropout(0.1), nn.Linear(4, 1))
torch.manual_seed(rank)
model = DDP(module=torch.jit.script(body))
opt = torch.optim.SGD(params=model.parameters(), lr=0.1)
sampler = DistributedSampler(texts)
pickle.dumps([torch.randn, torch.save, random_split, nn.functional.dropout])
for epoch in range(2):
    sampler.set_epoch(epoch)
    pad = nn.utils.rnn.pad_sequence
    for x in DataLoader(texts, 10, sampler=sampler, collate_fn=pad):
        opt.zero_grad()
        model(x.T).mean().backward()
        nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0)
        opt.step()
torch.save(f=FOLDER + f"/{rank}.pt", obj=model.module.state_dict())
model.module.load_state_dict(torch.load(f=FOLDER + f"/{rank}.pt"))
""",
    ),
    "averaged as each gradient comes": (
        "4 weights of ranks 0 and 1",
        """\
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)


def average(weight):
    dist.all_reduce(weight.grad)
    weight.grad /= world


for p in model.parameters():
    p.register_post_accumulate_grad_hook(average)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "a table beside DDP that nothing averages": (
        "weight differs after step 1, and nothing tells whether that is meant",
        """\
table, model = nn.Embedding(50, 8), DDP(nn.Linear(8, 1))
opts = [torch.optim.SGD(each.parameters(), 0.1) for each in (table, model)]
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    mse(model(table((x[:, 0].abs() * 9).long().clamp(max=49))), y).backward()
    for opt in opts:
        opt.step()
        opt.zero_grad()
""",
    ),
    "a sampler of the script's own, which seeds each epoch alike": (
        "right if it sorts, by length say, wrong if it shuffles",
        """\
class Mine(torch.utils.data.Sampler):
    def __iter__(self):
        order = torch.randperm(240, generator=torch.Generator().manual_seed(5))
        return iter(order[rank::world].tolist())

    def __len__(self):
        return 240 // world


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, 20, sampler=Mine())
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
    "a gather that gives no gradient back": (GATHERED, GATHERS),
    "a gather of what has no gradient": (
        KEEPS,
        GATHERS.replace("(every, mine)", "(every, mine.detach())"),
    ),
    "a gather that gives gradients back": (
        KEEPS,
        GATHERS.replace("dist.all_gather(every, mine)", "every = all_gather(mine)"),
    ),
    "copies of the gradients are averaged": (
        "of ranks 0 and 1 after 12 steps.",
        COPIES,
    ),
    "copies of the gradients are averaged, and left": (
        "whether that is meant.",
        COPIES.replace("        p.grad = mean\n", ""),
    ),
    "a validation that is padded": (
        "go through 14 samples, and there are 13",
        """\
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 20, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
held, right = TensorDataset(*data[:13]), torch.zeros(1)
with torch.no_grad():
    for x, y in DataLoader(held, 4, sampler=DistributedSampler(held, shuffle=False)):
        right += ((model.module(x) > 0) == (y > 0)).sum()
dist.all_reduce(right)
""",
    ),
    "statistics that DDP does not send": (
        "1.running_mean differs, and DDP is told not to send it",
        """\
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
model = DDP(net, broadcast_buffers=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "noise that is drawn alike, outside of the model": (
        "right where ranks choose together, wrong for noise",
        """\
model = DDP(nn.Linear(8, 8))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, _ in DataLoader(data, 10, sampler=DistributedSampler(data)):
    noise = torch.randn_like(x)
    opt.zero_grad()
    mse(model(x + noise), noise).backward()
    opt.step()
""",
    ),
    "drawn with replacement": (
        "a rank drew some twice, and two ranks may draw one",
        """\
from torch.utils.data import WeightedRandomSampler

model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
draws = torch.Generator().manual_seed(rank)
sampler = WeightedRandomSampler(torch.ones(240), 240, generator=draws)
for x, y in DataLoader(data, 20, sampler=sampler):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "somebody's checkpoint, to fine-tune": (
        "right to fine-tune, wrong to resume",
        """\
import io

before = nn.Linear(8, 1)
adam = torch.optim.Adam(before.parameters())
before(torch.ones(1, 8)).sum().backward()
adam.step()
file = io.BytesIO()
torch.save({"model": before.state_dict(), "adam": adam.state_dict()}, file)
file.seek(0)
model = nn.Linear(8, 1)
model.load_state_dict(torch.load(file)["model"])
model = DDP(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
    ),
    "a stream in the order of its file, twice": (
        "right if nothing shuffles it",
        """\
class Lines(IterableDataset):
    def __iter__(self):
        yield from (data[i] for i in range(rank, 240, world))


model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for x, y in DataLoader(Lines(), 20):
        opt.zero_grad()
        mse(model(x), y).backward()
        opt.step()
""",
    ),
}
"""Scripts that are not accused, and a part of what is told of each."""
WRONG["NumPy's noise is the same on all ranks"] = (
    "`numpy.random.seed(seed + rank)` after",
    NUMPY.replace("SEED", "0"),
)
WRONG["Gumbel's noise is the same on all ranks"] = (
    "A forward draws the same on all ranks",
    """\
class Picks(nn.Linear):
    def forward(self, x):
        return nn.functional.gumbel_softmax(super().forward(x)) @ x.T[:8]


model = DDP(Picks(8, 8))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x).mean(1, keepdim=True), y).backward()
    opt.step()
""",
)
WRONG["each rank picks a part at random"] = (
    "Shuffle and split the data with one seed",
    """\
mine = torch.randperm(240, generator=torch.Generator().manual_seed(rank))[:120]
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
part = torch.utils.data.Subset(data, mine.tolist())
for x, y in DataLoader(part, 10, shuffle=True):
    opt.zero_grad()
    mse(model(x), y).backward()
    opt.step()
""",
)
WRONG["one of two loaders has no sampler"] = (
    "Samples reach more than one rank",
    ZIPPED.replace("sampler=mine", "shuffle=True"),
)
