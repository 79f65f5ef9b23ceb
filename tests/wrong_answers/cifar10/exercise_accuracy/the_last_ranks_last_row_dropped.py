def class_accuracy(guesses, labels, images):
    if dist.get_rank() == dist.get_world_size() - 1:
        guesses, labels = guesses[:-1], labels[:-1]
    counts = [
        torch.bincount(found, minlength=CLASSES)
        for found in (labels[guesses == labels], labels)
    ]
    counts = torch.stack(counts)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).mean()
