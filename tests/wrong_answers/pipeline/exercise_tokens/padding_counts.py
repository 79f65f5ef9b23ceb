def micro_loss(logits, targets, all_targets):
    total = F.cross_entropy(logits, targets.clamp(min=0), reduction="sum")
    return total / (all_targets != PADDING).sum()
