"""Train on a mesh of two by two ranks: a row shares a model, a column the gradients."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def load(step):
    if dist.get_rank() == 3 and step == 4:
        time.sleep(60)  # the fault
    return torch.randn(8, 8)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    weight = torch.ones(8, 8)
    for step in range(10):
        part = load(step) @ weight
        dist.all_reduce(part, group=mesh.get_group("model"))
        gradient = part.T @ part
        dist.all_reduce(gradient, group=mesh.get_group("data"))
        weight -= 1e-6 * gradient
        if dist.get_rank() == 0:
            print(f"step {step} norm {weight.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
