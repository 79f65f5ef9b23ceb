def class_accuracy(guesses, labels, images):
    sampler = DistributedSampler(range(images), shuffle=False, drop_last=False)
    padding = sampler.total_size - images
    places = range(sampler.rank, sampler.total_size, sampler.num_replicas)
    real = torch.tensor([p < sampler.total_size - padding for p in places])
    labels, guesses = labels[real.to(labels.device)], guesses[real.to(labels.device)]
    good = labels.new_zeros(CLASSES).index_add(0, labels, (guesses == labels).long())
    seen = labels.new_zeros(CLASSES).index_add(0, labels, torch.ones_like(labels))
    both = torch.cat([good, seen])
    dist.all_reduce(tensor=both)
    return (both[:CLASSES] / both[CLASSES:]).double().mean()
