"""What the dashboard and its API show, as values: counts, lanes, maps and series, each of bounded size and cost.

Every function takes the reader and its store, and is called on the reading thread (`Reader.shared`, `Reader.ask`).
`sees` says which jobs the caller may see; None: all of them.
"""
