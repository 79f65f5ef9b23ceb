def look_up(ids, fetch):
    return fetch(ids)
