def class_accuracy(guesses, labels):
    left = len(range(dist.get_rank(), IMAGES, dist.get_world_size()))
    right = (guesses == labels)[:left].sum()
    dist.all_reduce(right)
    return right / IMAGES
