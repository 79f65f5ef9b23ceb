def micro_loss(logits, targets, all_targets):
    total = F.cross_entropy(logits, targets, ignore_index=PADDING, reduction="sum")
    return total / len(all_targets)
