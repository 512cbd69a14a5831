"""Chapter C: vanishing and exploding gradients."""
