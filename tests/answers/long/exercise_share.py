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


# %% wrong: every rank computes all
def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    whole = []
    for x in (q, k, v):
        parts = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(parts, x.contiguous())
        early, late = zip(*(part.chunk(2, 2) for part in parts), strict=True)
        whole.append(torch.cat([*early, *reversed(late)], 2))
    at = torch.arange(len(document), device=q.device)
    mask = (at[:, None] >= at) & (document[:, None] == document)
    out = F.scaled_dot_product_attention(*whole, attn_mask=mask).chunk(2 * n, 2)
    return torch.cat([out[rank], out[-1 - rank]], 2)


# %% wrong: rank 0 computes all
def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.stack([q, k, v])
    parts = [torch.empty_like(mine) for _ in range(n)] if rank == 0 else None
    dist.gather(mine, parts)
    out, back = torch.empty_like(q), None
    if rank == 0:
        early, late = zip(*(part.chunk(2, 3) for part in parts), strict=True)
        whole = torch.cat([*early, *reversed(late)], 3)
        at = torch.arange(len(document), device=q.device)
        mask = (at[:, None] >= at) & (document[:, None] == document)
        out_of = F.scaled_dot_product_attention(*whole, attn_mask=mask).chunk(2 * n, 2)
        back = [torch.cat([out_of[r], out_of[-1 - r]], 2) for r in range(n)]
    dist.scatter(out, back)
    return out


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


# %% right: positions for heads
def attend(q, k, v, document):
    n = dist.get_world_size()
    at = torch.arange(len(document), device=q.device).chunk(2 * n)
    places = torch.cat([torch.cat([at[r], at[-1 - r]]) for r in range(n)])

    def trade(x, cut, join):
        sent = torch.cat(x.chunk(n, cut))
        come = torch.empty_like(sent)
        dist.all_to_all_single(come, sent)
        return torch.cat(come.chunk(n), join)

    heads = [trade(x, 1, 2) for x in (q, k, v)]
    mask = places[:, None] >= places
    mask &= document[places][:, None] == document[places]
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    return trade(out, 2, 1)


# %% right: keys and values go around
def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    at = torch.arange(len(document), device=q.device).chunk(2 * n)
    places = [torch.cat([at[r], at[-1 - r]]) for r in range(n)]
    scores, values, both = [], [], torch.stack([k, v])
    for turn in range(n):
        theirs = places[(rank - turn) % n]
        seen = places[rank][:, None] >= theirs
        seen &= document[places[rank]][:, None] == document[theirs]
        score = q @ both[0].mT / q.size(-1) ** 0.5
        scores.append(score.masked_fill(~seen, float("-inf")))
        values.append(both[1])
        if turn < n - 1:
            come = torch.empty_like(both)
            out = dist.isend(both, (rank + 1) % n)
            dist.recv(come, (rank - 1) % n)
            out.wait()
            both = come
    return torch.cat(scores, -1).softmax(-1) @ torch.cat(values, 2)
