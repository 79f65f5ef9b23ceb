"""Hints for ddp_lab/tensor/exercise_two_d.py, and an answer.

1. Which modules are a column cut, which one is the row cut, and which have weights and
   are neither? How many f do gate and up need together?
2. In cut: parallelize_module over mesh["tensor"], then fully_shard over mesh["data"],
   each MLP first. In step: which samples are those of mesh["data"].get_local_rank()?
3. The plan has "mlps.*" with PrepareModuleInput, their gate, up and down, and Whole()
   for "norms.*" and "score". In step, clip_grad_norm_ is called between backward and
   optimizer.step(); full_tensor() makes its result whole.
"""


def cut(model, mesh):
    whole = {"input_layouts": Replicate(), "desired_input_layouts": Replicate()}
    plan = {
        "norms.*": Whole(),
        "mlps.*": PrepareModuleInput(**whole),  # one f for gate and up
        "mlps.*.gate": ColwiseParallel(),
        "mlps.*.up": ColwiseParallel(),
        "mlps.*.down": RowwiseParallel(),
        "score": Whole(),
    }
    parallelize_module(model, mesh["tensor"], plan)
    for part in (*model.mlps, model):
        fully_shard(part, mesh=mesh["data"])
    return model


def step(model, optimizer, mesh, x, y):
    data = mesh["data"]
    x, y = (t.chunk(data.size())[data.get_local_rank()] for t in (x, y))
    F.mse_loss(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    return norm.full_tensor().item()
