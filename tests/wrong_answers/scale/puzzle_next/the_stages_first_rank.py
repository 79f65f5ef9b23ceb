def next_stage(rank, pipeline, data, tensor):
    stage = rank // (data * tensor)
    return (stage + 1) % pipeline * data * tensor
