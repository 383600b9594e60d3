"""Stop sync: the official register of stops compared with OpenStreetMap.

In reading order: `model` (the rows), `reading` and `preprocess` (sources into rows), `artefacts` (rows in files),
`matching`, `problems`, `tables` and `database`; then `settings`, `pipeline` and `service`, which run it all at fixed
intervals, and `web`, which shows the result. Beside them `data` invents sources whose truth is known, `source_server`
serves them, and `quality` compares what was found with the truth.
"""
