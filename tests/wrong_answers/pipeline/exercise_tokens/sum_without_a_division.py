def micro_loss(logits, targets, all_targets):
    return F.cross_entropy(logits, targets, ignore_index=PADDING, reduction="sum")
