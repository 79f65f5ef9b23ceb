def class_accuracy(guesses, labels, images):
    left = len(range(dist.get_rank(), images, dist.get_world_size()))
    right = (guesses == labels)[:left].sum()
    dist.all_reduce(right)
    return right / images
