"""Only equal items that are neighbors become one."""


def look_up(ids, fetch):
    distinct, place = ids.unique_consecutive(return_inverse=True)
    return fetch(distinct)[place]
