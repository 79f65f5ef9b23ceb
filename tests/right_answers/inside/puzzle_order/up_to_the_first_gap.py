def leave(full, left, send):
    until = [*full, False].index(False)
    for number in range(left, until):
        send(number)
