def swap(mine, rank, partner):
    if rank < partner:
        dist.send(mine, partner)
        dist.recv(mine, partner)
    else:
        dist.recv(mine, partner)
        dist.send(mine, partner)
    return mine
