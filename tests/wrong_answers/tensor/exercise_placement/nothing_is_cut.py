def plan():
    both = {
        "input_layouts": Shard(1),
        "desired_input_layouts": Replicate(),
        "use_local_input": True,
        "output_layouts": Replicate(),
        "desired_output_layouts": Shard(1),
    }
    return {
        "norm1": SequenceParallel(use_local_output=True),
        "attention": PrepareModuleInputOutput(**both),
        "norm2": SequenceParallel(use_local_output=True),
        "mlp": PrepareModuleInputOutput(**both),
    }
