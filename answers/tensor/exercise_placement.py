"""Hints for ddp_lab/tensor/exercise_placement.py, and an answer.

1. Between which modules is an activation whole, and where is it cut along time? Which
   placements does that give for the input and the output of attention and MLP?
2. SequenceParallel() is the style of a norm that sees positions of its own. The input
   of attention and MLP goes from Shard(1) to Replicate, their output leaves the row cut
   as Shard(1), not as a sum on every rank.
3. PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()) on
   "attention" gathers once for query, key and value. RowwiseParallel takes
   output_layouts=Shard(1).
"""


def plan():
    gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
    return {
        "norm1": SequenceParallel(),
        "attention": PrepareModuleInput(**gather),  # once, for its three readers
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**gather),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
