"""Two-dimensional maps of words: `word_map` places and clusters words, `picture` draws a PNG, `page` renders HTML.

    words → vectors → projection, clusters → WordMap → picture | page

Nothing here knows how the vectors were trained, or of the command line.
"""
