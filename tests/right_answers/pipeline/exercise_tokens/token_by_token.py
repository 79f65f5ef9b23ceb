def micro_loss(logits, targets, all_targets):
    each = F.cross_entropy(logits, targets, reduction="none", ignore_index=PADDING)
    real = [target for target in all_targets.tolist() if target != PADDING]
    return each.sum() / len(real)
