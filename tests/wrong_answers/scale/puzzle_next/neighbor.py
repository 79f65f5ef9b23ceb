def next_stage(rank, pipeline, data, tensor):
    return (rank + 1) % (pipeline * data * tensor)
