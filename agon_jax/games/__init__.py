"""Games that two policies play against each other."""
