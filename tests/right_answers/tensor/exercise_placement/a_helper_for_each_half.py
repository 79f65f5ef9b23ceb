def half(norm, part, readers, writer):
    gathered = PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate()
    )
    styles = {norm: SequenceParallel(sequence_dim=1), part: gathered}
    for reader in readers:
        styles[f"{part}.{reader}"] = ColwiseParallel(use_local_output=True)
    styles[f"{part}.{writer}"] = RowwiseParallel(
        input_layouts=Shard(-1), output_layouts=Shard(1)
    )
    return styles


def plan():
    attention = half("norm1", "attention", ("query", "key", "value"), "out")
    return {**attention, **half("norm2", "mlp", ["up"], "down")}
