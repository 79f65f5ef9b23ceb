def next_stage(rank, pipeline, data, tensor):
    return (rank + tensor) % (pipeline * data * tensor)
