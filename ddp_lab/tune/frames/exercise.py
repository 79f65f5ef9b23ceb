"""Exercise: the recipe of a fine-tuning: load a published model, step, and export.

Once the three functions are written, two drawn models are loaded, trained and exported
with them, and compared with one process at each stage. Until then:

    [rank 0] not yet
"""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp  # noqa: F401, for load() and export()
import torch.nn.functional as F
from safetensors import safe_open
from torch.distributed.checkpoint.hf_storage import (  # noqa: F401, the same
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: F401, the same
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.llama import (
    NO_TARGET,
    Config,
    Llama,
    padded,
    read,
    sentences,
    write,
    write_config,  # noqa: F401, for export()
)

STEPS, ROWS, RATE = 3, 3, 0.3  # rows of each rank in a step


def load(folder, mesh):
    return None  # the cell's function stands here


def step(model, optimizer, micro_batches):
    return None  # the cell's function stands here


def export(model, folder):
    return None  # the cell's function stands here


class Watch(TorchDispatchMode):
    """Counts the numbers in bf16, as only the files have them, that anything reads.

    A file is mapped: a view of a weight in it has not read a page.
    """

    numbers = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        out = op(*args, **(kwargs or {}))
        made = out.untyped_storage().data_ptr() if isinstance(out, torch.Tensor) else 0
        flat = [t for arg in args for t in (arg if isinstance(arg, list) else [arg])]
        for tensor in flat:
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bfloat16:
                seen = tensor.untyped_storage().data_ptr() == made  # or written to
                self.numbers += tensor.numel() * (not seen and tensor.is_cpu)
        return out


def loaded(folder, mesh):
    """Call load, and count what it builds and reads; return None if not written."""
    built, build = [], Llama.__init__

    def init(self, *args, **kwargs):
        build(self, *args, **kwargs)
        built.append(self.lm_head.weight.device.type)

    Llama.__init__ = init
    with Watch() as watch:
        model = load(folder, mesh)
    Llama.__init__ = build
    if model is None:
        return None
    if built != ["meta"]:
        raise AssertionError(f"Llama was built on {built}, expected meta, once")
    well_sharded(model)
    own = sum(w.to_local().numel() for w in model.parameters())
    whole = sum(w.numel() for w in model.parameters())
    if mesh.size() > 1 and watch.numbers > (own + whole) // 2:
        told = f"this rank read {watch.numbers:,} numbers of the files"
        raise AssertionError(f"{told}, and its rows are {own:,}")
    return model


def well_sharded(model):
    """Refuse weights that are whole, or not in a group of their block, or bf16."""
    weights = list(model.parameters())
    if not all(isinstance(w, DTensor) for w in weights):
        raise AssertionError("a weight is not sharded")
    if not all(isinstance(layer, FSDPModule) for layer in model.model.layers):
        raise AssertionError("a block is not a group")
    if kinds := {w.dtype for w in weights} - {torch.float32}:
        raise AssertionError(f"the optimizer would step {kinds}, expected float32")


def same_logits(model, folder, what):
    """Compare with one process that reads the folder."""
    x, _ = padded(sentences(99, 4), next(model.parameters()).device)
    with torch.no_grad():
        off = (model(x) - read(folder).to(x.device)(x)).abs().max().item()
    model.reshard()
    if not off < 1e-2:
        raise AssertionError(f"{what}: logits are off by up to {off:.3f}")


def steps(model, folder, mesh):
    """Train both; return the model of one process, or None if step is not written."""
    kind, rank = mesh.device_type, mesh.get_rank()
    expected = read(folder).to(kind)
    optimizer, other = (
        torch.optim.SGD(each.parameters(), lr=RATE) for each in (model, expected)
    )
    for number in range(STEPS):
        rows = sentences(number, ROWS * mesh.size())
        own = rows[ROWS * rank :][:ROWS]
        mine = [padded(own[:1], kind), padded(own[1:], kind)]
        if (loss := step(model, optimizer, mine)) is None:
            return None
        x, y = padded(rows, kind)
        right = F.cross_entropy(expected(x).flatten(0, 1), y.flatten())
        other.zero_grad()
        right.backward()
        other.step()
        if not abs(float(loss) / right.item() - 1) < 1e-3:
            told = f"loss {float(loss):.4f}, one process has {right.item():.4f}"
            raise AssertionError(f"step {number + 1}: {told}")
    same_weights(model, expected)
    return expected


def same_weights(model, expected):
    """Compare after all steps: each rank gathers each weight."""
    pairs = zip(model.named_parameters(), expected.parameters(), strict=True)
    for (name, w), e in pairs:
        told = f"{name} is not that of one process after {STEPS} steps"
        torch.testing.assert_close(w.full_tensor(), e, rtol=1e-3, atol=2e-5, msg=told)


def files_that_are_found(folder):
    """Return the files that the index names; without one, model.safetensors."""
    index, names = Path(folder) / "model.safetensors.index.json", {"model.safetensors"}
    if index.exists():
        names = {*json.loads(index.read_text())["weight_map"].values()}
    there = {path.name for path in Path(folder).glob("*.safetensors")}
    if there != names:
        told = f"the folder has {sorted(there)}, a reader looks for {sorted(names)}"
        raise AssertionError(told)
    return [Path(folder) / name for name in sorted(names)]


def same_files(folder, expected):
    """Compare what is in the files with the weights of one process."""
    found = {}
    for path in files_that_are_found(folder):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}
    right = dict(expected.named_parameters())
    if found.keys() != right.keys():
        differ = sorted(found.keys() ^ right.keys())
        raise AssertionError(f"the files have other weights than the model: {differ}")
    for name, w in right.items():
        if found[name].dtype != torch.bfloat16:
            raise AssertionError(f"{name} is {found[name].dtype}, expected bfloat16")
        told = f"{name} is not that of one process"
        got, w = found[name].float(), w.detach().cpu()
        torch.testing.assert_close(got, w, rtol=1e-2, atol=1e-3, msg=told)
    if Config.read(folder) != expected.config:
        raise AssertionError("config.json says something else than the model's")


def try_out(config, mesh, alone, folder):
    """Load, train, export and load again; return whether all of it is written."""
    given, out = f"{folder}/given", f"{folder}/out"
    if dist.get_rank() == 0:
        torch.manual_seed(1)
        write(Llama(config), given, files=3)
    dist.barrier()  # now all ranks find it
    if (model := loaded(given, mesh)) is None:
        return False
    same_logits(model, given, "loaded")
    if (expected := steps(model, given, mesh)) is None:
        return False
    export(model, out)
    dist.barrier()  # all have written
    if not Path(out).exists():
        return False
    same_files(out, expected)
    for each, ranks in (mesh, mesh.size()), (alone, 1):
        same_logits(loaded(out, each), out, f"exported, and loaded on {ranks}")
    return True


def drawn(tied):
    """Return the sizes of a model, which ranks cannot share equally."""
    return Config(
        hidden_size=random.choice([40, 56]),
        intermediate_size=random.choice([98, 130]),
        num_hidden_layers=random.choice([2, 3]),
        num_attention_heads=4,
        num_key_value_heads=random.choice([1, 2]),
        rope_theta=random.choice([100.0, 500000.0]),
        tie_word_embeddings=tied,
    )


def main(rank, world_size, device):
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    names = ("row", "alone")  # a row's only rank is the second mesh
    alone = dist.init_device_mesh(kind, (world_size, 1), mesh_dim_names=names)["alone"]
    with TemporaryDirectory() as own:
        given = [own, [drawn(True), drawn(False)]]
        dist.broadcast_object_list(given, src=0)  # the same models on every rank
        folder, configs = given
        solved = all(
            try_out(config, mesh, alone, f"{folder}/{number}")
            for number, config in enumerate(configs)
        )
        dist.barrier()  # all have read; the folder may go
    if not solved:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        return None
    told = f"as one process, and read by 1 and by {world_size}"
    print(f"[rank {rank}] loaded, trained, exported: {told}", flush=True)
    return {"solved": True}
