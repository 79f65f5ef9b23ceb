def class_accuracy(guesses, labels, images):
    left = len(range(dist.get_rank(), images, dist.get_world_size()))
    guesses, labels = guesses[:left], labels[:left]
    right = torch.bincount(labels[guesses == labels], minlength=CLASSES)
    accuracy = (right / torch.bincount(labels, minlength=CLASSES).clamp(min=1)).mean()
    dist.all_reduce(accuracy)
    return accuracy / dist.get_world_size()
