def sum_by_messages(send_buf, rank, world_size):
    def tell(number, other):
        dist.send(number, group_dst=other)

    if rank == 0:
        numbers = [send_buf]
        for _ in range(world_size - 1):
            numbers.append(torch.empty_like(send_buf))
            dist.recv(numbers[-1])  # from any rank
        total = torch.stack(numbers).sum(dim=0)
        for other in range(1, world_size):
            tell(total, other)
        return total
    tell(send_buf, 0)
    dist.recv(total := torch.zeros_like(send_buf), group_src=0)
    return total
