#!/bin/bash
# One torchrun on each node of a SLURM job; they meet by c10d, on the first node.
#
#     srun --nodes 2 ddp_lab/nodes/c10d.sh

[ -e .venv ] && source .venv/bin/activate  # or what your cluster asks for: module load

export OMP_NUM_THREADS=1  # as torchrun sets it, with a banner, where it is not set
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# The command is the same on every node: c10d itself agrees on who is node 0.
torchrun --nproc-per-node 2 --nnodes "$SLURM_NNODES" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-endpoint "$first:$((20000 + SLURM_JOB_ID % 10000))" \
    ddp_lab/nodes/who.py
