"""Mixing weights of a graph, and what follows from them: the speed of consensus, and the noise that averages out."""
