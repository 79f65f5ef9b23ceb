"""Hints for ddp_lab/cifar10/exercise_accuracy.py, and an answer.

1. The sampler repeats images so that all ranks have equally many. Which of yours are
   real, and which counts must be added up before anything is divided?
2. The real ones come first: as many as there are numbers in range(rank, images,
   world_size). Count by class with torch.bincount(..., minlength=CLASSES).
3. Stack two counts into one tensor: the labels of the images guessed right, and all
   labels. all_reduce it, divide the first by the second, and return the mean of the ten
   quotients.
"""


def class_accuracy(guesses, labels, images):
    n, rank = dist.get_world_size(), dist.get_rank()
    left = len(range(rank, images, n))  # behind them, the sampler pads
    guesses, labels = guesses[:left], labels[:left]
    counts = [
        torch.bincount(found, minlength=CLASSES)
        for found in (labels[guesses == labels], labels)
    ]
    counts = torch.stack(counts)
    dist.all_reduce(counts)  # every rank now holds the counts of all
    return (counts[0] / counts[1]).mean()
