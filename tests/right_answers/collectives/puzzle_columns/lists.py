def columns(row):
    pieces = [piece.clone() for piece in row.split(1)]
    got = [torch.empty_like(piece) for piece in pieces]
    dist.all_to_all(got, pieces)
    return sum(got)
