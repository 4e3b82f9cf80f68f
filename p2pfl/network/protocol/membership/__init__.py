"""Present peers: announcements, edges, rounds that neighbours have reached, and the round of entry."""
