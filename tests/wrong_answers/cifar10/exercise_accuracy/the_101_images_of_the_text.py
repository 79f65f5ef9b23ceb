def class_accuracy(guesses, labels, images):
    left = len(range(dist.get_rank(), 101, dist.get_world_size()))
    guesses, labels = guesses[:left], labels[:left]
    counts = [
        torch.bincount(found, minlength=CLASSES)
        for found in (labels[guesses == labels], labels)
    ]
    counts = torch.stack(counts)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).mean()
