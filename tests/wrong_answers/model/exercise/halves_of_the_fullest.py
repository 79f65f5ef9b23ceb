def place(layer_bytes, world_size):
    pieces = [[0, len(layer_bytes)]]

    def held(piece):
        return sum(layer_bytes[slice(*piece)])

    while len(pieces) < world_size:  # cut the fullest where its halves are most even
        fullest = max((p for p in pieces if p[1] - p[0] > 1), key=held)
        first, end = fullest
        cut = min(
            range(first + 1, end),
            key=lambda cut: max(held([first, cut]), held([cut, end])),
        )
        where = pieces.index(fullest)
        pieces[where : where + 1] = [[first, cut], [cut, end]]
    return [end - first for first, end in pieces]
