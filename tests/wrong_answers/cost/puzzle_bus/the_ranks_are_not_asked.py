def bus(size, mine, n):
    return 2 * (n - 1) / n * size / mine
