"""A two-dimensional map of words: `chart` places and groups them, `picture` draws a PNG, `page` a page to explore.

    words → vectors → projection, groups → Chart → picture | page

Nothing here knows how the vectors were made, or of the command line.
"""
