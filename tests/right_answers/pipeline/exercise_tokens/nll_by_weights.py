def micro_loss(logits, targets, all_targets):
    padding = int((all_targets == PADDING).sum())
    losses = F.nll_loss(
        input=F.log_softmax(logits, dim=-1),
        target=targets,
        ignore_index=PADDING,
        reduction="sum",
    )
    return torch.div(losses, all_targets.numel() - padding)
