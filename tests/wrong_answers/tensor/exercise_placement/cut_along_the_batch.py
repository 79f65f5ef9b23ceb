def plan():
    gather = {"input_layouts": Shard(0), "desired_input_layouts": Replicate()}
    return {
        "norm1": SequenceParallel(),
        "attention": PrepareModuleInput(**gather),  # once, for its three readers
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(0)),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**gather),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(0)),
    }
