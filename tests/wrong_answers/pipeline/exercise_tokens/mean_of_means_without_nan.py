def micro_loss(logits, targets, all_targets):
    count = len(all_targets) // len(targets)
    total = F.cross_entropy(logits, targets, ignore_index=PADDING, reduction="sum")
    return total / (targets != PADDING).sum().clamp(min=1) / count
