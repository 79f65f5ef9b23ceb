# %% wrong: mean of means
def micro_loss(logits, targets, all_targets):
    count = len(all_targets) // len(targets)
    return F.cross_entropy(logits, targets, ignore_index=PADDING) / count


# %% wrong: no loss of padding
def micro_loss(logits, targets, all_targets):
    n = (targets != PADDING).sum()  # of padding alone the mean is 0 / 0
    mean = F.cross_entropy(logits, targets, ignore_index=PADDING)
    return mean * n / (all_targets != PADDING).sum()


# %% wrong: padding counts
def micro_loss(logits, targets, all_targets):
    total = F.cross_entropy(logits, targets.clamp(min=0), reduction="sum")
    return total / (all_targets != PADDING).sum()


# %% right: a module
class TokenLoss(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens
        self.sum = nn.CrossEntropyLoss(reduction="sum", ignore_index=PADDING)

    def forward(self, logits, targets):
        return self.sum(logits.double(), targets).float() / self.tokens


def micro_loss(logits, targets, all_targets):
    tokens = int(torch.count_nonzero(all_targets - PADDING))
    return TokenLoss(tokens)(logits, targets)


# %% right: by log softmax
def micro_loss(logits, targets, all_targets):
    counts = targets != PADDING
    chosen = targets.clamp(min=0).unsqueeze(1)
    losses = -logits.log_softmax(dim=1).gather(1, chosen).squeeze(1)
    return (losses * counts).sum() / all_targets.ne(PADDING).sum()


# %% right: nll by weights
def micro_loss(logits, targets, all_targets):
    padding = int((all_targets == PADDING).sum())
    losses = F.nll_loss(
        input=F.log_softmax(logits, dim=-1),
        target=targets,
        ignore_index=PADDING,
        reduction="sum",
    )
    return torch.div(losses, all_targets.numel() - padding)


# %% right: token by token
def micro_loss(logits, targets, all_targets):
    each = F.cross_entropy(logits, targets, reduction="none", ignore_index=PADDING)
    real = [target for target in all_targets.tolist() if target != PADDING]
    return each.sum() / len(real)


# %% right: weighted means
def micro_loss(logits, targets, all_targets):
    mine = targets != PADDING
    share = mine.sum() / (all_targets != PADDING).sum()
    if not mine.any():
        return logits.sum() * 0.0
    return share * F.cross_entropy(logits[mine], targets[mine])
