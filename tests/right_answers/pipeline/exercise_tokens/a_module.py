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
