def class_accuracy(guesses, labels, images):
    counts = [
        torch.bincount(found, minlength=CLASSES)
        for found in (labels[guesses == labels], labels)
    ]
    counts = torch.stack(counts)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).mean()
