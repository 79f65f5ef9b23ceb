def plan():
    styles = {}
    for norm, part in (("norm1", "attention"), ("norm2", "mlp")):
        styles[norm] = SequenceParallel(use_local_output=False)
        styles[part] = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
    ins = "attention.query", "attention.key", "attention.value", "mlp.up"
    outs = "attention.out", "mlp.down"
    styles |= {name: ColwiseParallel() for name in ins}
    return styles | {name: RowwiseParallel(output_layouts=Shard(1)) for name in outs}
