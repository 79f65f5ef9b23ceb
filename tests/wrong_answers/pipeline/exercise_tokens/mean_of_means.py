def micro_loss(logits, targets, all_targets):
    count = len(all_targets) // len(targets)
    return F.cross_entropy(logits, targets, ignore_index=PADDING) / count
