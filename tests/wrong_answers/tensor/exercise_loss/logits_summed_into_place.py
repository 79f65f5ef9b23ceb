def loss_and_gradient(logits, targets, first):
    whole = torch.zeros(ROWS, VOCAB, dtype=logits.dtype, device=logits.device)
    whole[:, first : first + logits.size(1)] = logits
    dist.all_reduce(whole)
    whole.requires_grad_()
    loss = F.cross_entropy(whole, targets)
    loss.backward()
    return loss, whole.grad[:, first : first + logits.size(1)]
