def class_accuracy(guesses, labels):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (guesses == labels).tolist())
    return sum(map(sum, parts)) / IMAGES
