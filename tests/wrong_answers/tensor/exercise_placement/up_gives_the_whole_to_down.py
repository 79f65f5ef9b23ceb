def plan():
    gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
    return {
        "norm1": SequenceParallel(),
        "attention": PrepareModuleInput(**gather),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**gather),
        "mlp.up": ColwiseParallel(output_layouts=Replicate()),
        "mlp.down": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    }
