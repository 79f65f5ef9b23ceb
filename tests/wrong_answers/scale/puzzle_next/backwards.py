def next_stage(rank, pipeline, data, tensor):
    return (rank - data * tensor) % (pipeline * data * tensor)
