def next_stage(rank, pipeline, data, tensor):
    stage, place = divmod(rank, data * tensor)
    after = stage + 1 if stage + 1 < pipeline else 0
    return after * data * tensor + place
