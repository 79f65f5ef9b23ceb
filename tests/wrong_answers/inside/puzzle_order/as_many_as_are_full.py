def leave(full, left, send):
    for number in range(left, sum(full)):
        send(number)
