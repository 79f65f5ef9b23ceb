def next_stage(rank, pipeline, data, tensor):
    stage = rank % pipeline
    return rank - stage + (stage + 1) % pipeline
