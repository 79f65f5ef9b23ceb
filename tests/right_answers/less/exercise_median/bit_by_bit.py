def median(mine):
    count = torch.tensor(len(mine), device=mine.device)
    dist.all_reduce(count)
    wanted, answer = (count - 1) // 2, 0
    for bit in reversed(range(10)):
        below = (mine < answer + 2**bit).sum()
        dist.all_reduce(below)
        answer += 2**bit * int(below <= wanted)
    return answer
