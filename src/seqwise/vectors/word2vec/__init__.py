"""Skip-gram and CBOW (Mikolov et al. 2013): windows over sentences of ids → vectors. It knows ids, not words."""
