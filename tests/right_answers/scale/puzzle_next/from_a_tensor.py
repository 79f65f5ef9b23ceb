def next_stage(rank, pipeline, data, tensor):
    mesh = torch.arange(pipeline * data * tensor).view(pipeline, -1)
    return mesh.roll(-1, dims=0).flatten()[rank]
