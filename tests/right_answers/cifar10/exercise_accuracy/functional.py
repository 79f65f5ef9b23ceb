import torch.distributed._functional_collectives as funcol


def class_accuracy(guesses, labels, images):
    own = len(range(images)[dist.get_rank() :: dist.get_world_size()])
    counts = torch.zeros(2, CLASSES, dtype=torch.float64, device=labels.device)
    for guess, label in zip(guesses[:own], labels[:own], strict=True):
        counts[0, label] += guess == label
        counts[1, label] += 1
    counts = funcol.all_reduce(counts, "sum", dist.group.WORLD)
    return torch.mean(counts[0] / counts[1])
