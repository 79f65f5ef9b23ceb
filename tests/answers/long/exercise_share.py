# %% wrong: keys in the order of the sequence
def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    keys, values = ([torch.empty_like(x) for _ in range(n)] for x in (k, v))
    dist.all_gather(keys, k.contiguous())
    dist.all_gather(values, v.contiguous())
    theirs = torch.arange(len(document), device=q.device)
    at = theirs.chunk(2 * n)
    mine = torch.cat([at[rank], at[-1 - rank]])
    mask = (mine[:, None] >= theirs) & (document[mine][:, None] == document)
    return F.scaled_dot_product_attention(
        q, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask
    )


# %% wrong: across documents
CHANGES = {
    "mine, theirs = places[rank], torch.cat(places)": "",
    (
        "mask = (mine[:, None] >= theirs)"
        " & (document[mine][:, None] == document[theirs])"
    ): "mask = places[rank][:, None] >= torch.cat(places)",
}


# %% wrong: its own keys alone
def attend(q, k, v, document):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# %% right: back into the order of the sequence
def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    both = torch.empty(n, 2, *k.shape, dtype=k.dtype, device=k.device)
    dist.all_gather(list(both), torch.stack([k, v]))
    size = len(document) // (2 * n)
    owner = [min(p, 2 * n - 1 - p) for p in range(2 * n)]
    halves = [
        both[r, ..., :size, :] if p < n else both[r, ..., size:, :]
        for p, r in enumerate(owner)
    ]
    keys, values = torch.cat(halves, -2)
    at = torch.arange(len(document), device=q.device)
    mine = torch.cat([at.view(2 * n, size)[rank], at.view(2 * n, size)[-1 - rank]])
    scores = q @ keys.mT / q.size(-1) ** 0.5
    hidden = (mine[:, None] < at) | (document[mine][:, None] != document)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values
