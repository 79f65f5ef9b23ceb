def class_accuracy(guesses, labels, images):
    last_is_real = (len(labels) - 1) * dist.get_world_size() + dist.get_rank() < images
    if not last_is_real:
        guesses, labels = guesses[:-1], labels[:-1]
    matrix = torch.bincount(labels * CLASSES + guesses, minlength=CLASSES**2)
    dist.all_reduce(matrix, async_op=True).wait()
    matrix = matrix.view(CLASSES, CLASSES).double()
    return (matrix.diagonal() / matrix.sum(dim=1)).mean()
