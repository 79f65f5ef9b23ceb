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
