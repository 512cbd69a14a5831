"""The checks of `seqwise.lens.health`: each is a function of `RunEvidence`, with its rule in its docstring.

`evidence.py` reads a run, `curves.py` judges its curve, `interior.py` the inside of the model, `answers.py` what it
predicts, `data.py` the data.
"""
