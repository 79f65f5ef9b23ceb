def micro_loss(logits, targets, all_targets):
    n = (targets != PADDING).sum()  # of padding alone the mean is 0 / 0
    mean = F.cross_entropy(logits, targets, ignore_index=PADDING)
    return mean * n / (all_targets != PADDING).sum()
