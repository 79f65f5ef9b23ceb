def plan():
    gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
    return {
        "norm1": SequenceParallel(),
        "attention": PrepareModuleInputOutput(
            input_layouts=Shard(1),
            desired_input_layouts=Replicate(),
            output_layouts=Replicate(),
            desired_output_layouts=Shard(1),
        ),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(use_local_output=False),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**gather),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
