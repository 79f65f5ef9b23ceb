def micro_loss(logits, targets, all_targets):
    counts = targets != PADDING
    chosen = targets.clamp(min=0).unsqueeze(1)
    losses = -logits.log_softmax(dim=1).gather(1, chosen).squeeze(1)
    return (losses * counts).sum() / all_targets.ne(PADDING).sum()
