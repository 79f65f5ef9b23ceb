def micro_loss(logits, targets, all_targets):
    mine = targets != PADDING
    share = mine.sum() / (all_targets != PADDING).sum()
    if not mine.any():
        return logits.sum() * 0.0
    return share * F.cross_entropy(logits[mine], targets[mine])
