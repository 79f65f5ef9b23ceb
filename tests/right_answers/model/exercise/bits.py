def place(layer_bytes, world_size):
    def pieces(bits):
        cut = [[layer_bytes[0]]]
        for place, size in enumerate(layer_bytes[1:]):
            if bits >> place & 1:
                cut.append([])
            cut[-1].append(size)
        return cut

    cuts = [pieces(bits) for bits in range(2 ** (len(layer_bytes) - 1))]
    fit = [cut for cut in cuts if len(cut) == world_size]
    return torch.tensor(
        [len(p) for p in min(fit, key=lambda cut: max(map(sum, cut)))]
    ).tolist()
