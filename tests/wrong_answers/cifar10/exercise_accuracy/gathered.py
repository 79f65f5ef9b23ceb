def class_accuracy(guesses, labels, images):
    left = len(range(dist.get_rank(), images, dist.get_world_size()))
    guesses, labels = guesses[:left], labels[:left]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, torch.stack([guesses == labels, labels]))
    right, classes = torch.cat(everyone, dim=1)
    counts = [
        torch.bincount(found, minlength=CLASSES)
        for found in (classes[right.bool()], classes)
    ]
    return (counts[0] / counts[1]).mean()
