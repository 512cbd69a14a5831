"""Exercises about recurrent networks (chapters B to E)."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from seqwise.lab.exercises.exercise import Exercise, Inputs, Mistake, draw_arrays


def _draw_scores(random: np.random.Generator) -> Inputs:
    return {"z": random.normal(size=(5, 4)), "y": random.integers(0, 4, size=5)}


def _draw_gradient(random: np.random.Generator) -> Inputs:
    """Draws gradients that are longer and shorter than the threshold."""
    gradient = random.normal(size=6)
    return {"gradient": gradient, "threshold": float(np.linalg.norm(gradient) * random.choice([0.3, 2.0]))}


_RNN = {"W": (3, 2), "U": (3, 3), "b": (3,), "x": (4, 2), "y": (4, 3)}
_LSTM = {"W": (12, 2), "U": (12, 3), "b": (12,)}
_STEP = {**_LSTM, "x": (2,), "h": (3,), "c": (3,)}
_SENT_BACK = "np.concatenate([da_i, da_f, da_g, da_o])"  # what an LSTM's step multiplies by Uᵀ


def _list_wrong_orders() -> list[Mistake]:
    """Returns a mistake per wrong order of the LSTM's four parts."""
    return [
        Mistake(
            f"The parts are stacked in the order {', '.join(order)}; the rows of U have the order i, f, g, o.",
            _SENT_BACK,
            f"np.concatenate([{', '.join(f'da_{part}' for part in order)}])",
        )
        for order in permutations("ifgo")
        if order != tuple("ifgo")
    ]


RECURRENT = (
    Exercise(
        "B1",
        "Backpropagation through time of a vanilla RNN",
        ("dW", "dU", "db"),
        draw_arrays(**_RNN),
        (
            Mistake(
                "The path through time is missing: dh_t lacks what comes back from step t + 1.",
                "(h[t] - y[t]) + from_later",
                "(h[t] - y[t])",
            ),
            Mistake(
                "The loss of each step is missing: only that of the last step is used.",
                "(h[t] - y[t]) + from_later",
                "(h[t] - y[t]) * (t == len(x) - 1) + from_later",
            ),
            Mistake("The sign of the loss's gradient h_t − y_t is reversed.", "(h[t] - y[t])", "(y[t] - h[t])"),
            Mistake("The derivative of the tanh, 1 − h_t², is missing.", "dh * (1 - h[t] ** 2)", "dh"),
            Mistake("The derivative of the tanh is 1 − h_t², not 1 − h_t.", "(1 - h[t] ** 2)", "(1 - h[t])"),
            Mistake(
                "h_t is already the tanh: its derivative is 1 − h_t², not 1 − tanh²(h_t).",
                "(1 - h[t] ** 2)",
                "(1 - np.tanh(h[t]) ** 2)",
            ),
            Mistake("U is not transposed: the gradient goes back through Uᵀ, not through U.", "U.T @ da", "U @ da"),
            Mistake(
                "What goes back to h_(t-1) lacks the derivative of the tanh: it is Uᵀ da, not Uᵀ dh.",
                "U.T @ da",
                "U.T @ dh",
            ),
            Mistake(
                "dU uses h_t; it needs the state before the step, h_(t-1).",
                "np.outer(da, previous)",
                "np.outer(da, h[t])",
            ),
        ),
        {"dW": ("loss", "W"), "dU": ("loss", "U"), "db": ("loss", "b")},
        steps=("x", "y"),
    ),
    Exercise(
        "B6",
        "The gradient of the softmax cross-entropy",
        ("dz",),
        _draw_scores,
        (
            Mistake(
                "The sign is reversed: it is p minus the one-hot target.", "return p - target", "return target - p"
            ),
            Mistake("The target is missing: the gradient is p − target, not p.", "return p - target", "return p"),
            Mistake(
                "J is a sum over the steps, not a mean: do not divide by T.",
                "return p - target",
                "return (p - target) / len(z)",
            ),
            Mistake(
                "The softmax is over the classes of each step (axis 1), not over the steps.",
                "exponentials / exponentials.sum(axis=1, keepdims=True)",
                "exponentials / exponentials.sum(axis=0, keepdims=True)",
            ),
            Mistake(
                "The softmax is divided by the sum of all steps; each row has a sum of its own.",
                "exponentials / exponentials.sum(axis=1, keepdims=True)",
                "exponentials / exponentials.sum()",
            ),
        ),
        {"dz": ("loss", "z")},
    ),
    Exercise(
        "C6",
        "Clipping by norm and by value",
        ("by_norm", "by_value"),
        _draw_gradient,
        (
            Mistake(
                "A gradient that is shorter than the threshold must stay as it is.",
                "min(1.0, threshold / norm)",
                "(threshold / norm)",
            ),
            Mistake(
                "Negative entries are not limited: the lower limit is −threshold.",
                "np.clip(gradient, -threshold, threshold)",
                "np.minimum(gradient, threshold)",
            ),
            Mistake(
                "The lower limit is −threshold, not 0.",
                "np.clip(gradient, -threshold, threshold)",
                "np.clip(gradient, 0, threshold)",
            ),
        ),
    ),
    Exercise(
        "D1",
        "One step of an LSTM",
        ("h", "c"),
        draw_arrays(**_STEP),
        (
            Mistake(
                "The input and the forget gate are exchanged: f keeps the old cell, i writes the candidate.",
                "f * c + i * g",
                "i * c + f * g",
            ),
            Mistake("The candidate is a tanh, not a sigmoid.", "g = np.tanh(a_g)", "g = sigmoid(a_g)"),
            Mistake("The new state is o · tanh(c'); the tanh is missing.", "o * np.tanh(c)", "o * c"),
            Mistake("The new cell lacks the candidate, i ⊙ g.", "f * c + i * g", "f * c"),
            Mistake("The new cell lacks the old one, f ⊙ c.", "f * c + i * g", "i * g"),
            Mistake("The gates are σ(a), between 0 and 1, not tanh(a).", "f = sigmoid(a_f)", "f = np.tanh(a_f)"),
        ),
    ),
    Exercise(
        "D5",
        "The derivative of the LSTM's cell",
        ("dc_dc", "dc_dh"),
        draw_arrays(**_STEP),
        (
            Mistake(
                "The path through the forget gate is missing.",
                "return dc_dc, through_f + through_i + through_g",
                "return dc_dc, through_i + through_g",
            ),
            Mistake(
                "The path through the input gate is missing.",
                "return dc_dc, through_f + through_i + through_g",
                "return dc_dc, through_f + through_g",
            ),
            Mistake(
                "The path through the candidate is missing.",
                "return dc_dc, through_f + through_i + through_g",
                "return dc_dc, through_f + through_i",
            ),
            Mistake(
                "The derivative of the sigmoid, f (1 − f), is missing in the path through the forget gate.",
                "(c * f * (1 - f))",
                "c",
            ),
            Mistake("The path through the forget gate needs the factor c.", "(c * f * (1 - f))", "(f * (1 - f))"),
            Mistake("The path through the input gate needs the factor g.", "(g * i * (1 - i))", "(i * (1 - i))"),
            Mistake("The path through the candidate needs the factor i.", "(i * (1 - g**2))", "(1 - g**2)"),
            Mistake(
                "U_f is transposed: row j of the derivative belongs to c'_j.",
                "(c * f * (1 - f))[:, None] * U_f",
                "(c * f * (1 - f))[:, None] * U_f.T",
            ),
            Mistake("On the direct path ∂c'/∂c is f, not i.", "np.diag(f)", "np.diag(i)"),
        ),
        {"dc_dc": ("compute_cell", "c"), "dc_dh": ("compute_cell", "h")},
    ),
    Exercise(
        "D7",
        "Backpropagation through time of an LSTM",
        ("dW_g", "dU_g"),
        draw_arrays(**_LSTM, x=(4, 2), y=(4, 3)),
        (
            Mistake(
                "The path through the cell is missing: dc_t lacks what comes back from c_(t+1).",
                "+ dc_later  # blank",
                "  # blank",
            ),
            Mistake(
                "The path through the state is missing: dh_t lacks what comes back from step t + 1.",
                "(h[t] - y[t]) + dh_later",
                "(h[t] - y[t])",
            ),
            Mistake(
                "The gradient goes back to c_(t-1) through the forget gate; the factor f_t is missing.",
                "dc_later = dc * f[t]",
                "dc_later = dc",
            ),
            Mistake(
                "The path through the output gate is missing in what goes back to h_(t-1).",
                _SENT_BACK,
                "np.concatenate([da_i, da_f, da_g, 0 * da_o])",
            ),
            Mistake(
                "The path through the forget gate is missing in what goes back to h_(t-1).",
                _SENT_BACK,
                "np.concatenate([da_i, 0 * da_f, da_g, da_o])",
            ),
            Mistake(
                "The path through the input gate is missing in what goes back to h_(t-1).",
                _SENT_BACK,
                "np.concatenate([0 * da_i, da_f, da_g, da_o])",
            ),
            Mistake(
                "Only the path through the candidate goes back to h_(t-1), but all three gates read h_(t-1) too.",
                _SENT_BACK,
                "np.concatenate([0 * da_i, 0 * da_f, da_g, 0 * da_o])",
            ),
            *_list_wrong_orders(),
            Mistake(
                "U is not transposed: the gradient goes back through Uᵀ, not through U.",
                "dh_later = U.T @ np.concatenate([da_i, da_f, da_g, da_o])",
                "dh_later = sum(block @ part for block, part in zip(np.split(U, 4), [da_i, da_f, da_g, da_o]))",
            ),
            Mistake(
                "The derivative of the tanh at the output, 1 − tanh²(c_t), is missing.",
                "dh * o[t] * (1 - np.tanh(c[t]) ** 2)",
                "dh * o[t]",
            ),
            Mistake(
                "The derivative of the tanh at the output is 1 − tanh²(c_t), not 1 − c_t².",
                "(1 - np.tanh(c[t]) ** 2)",
                "(1 - c[t] ** 2)",
            ),
            Mistake(
                "The derivative of the tanh at the output is 1 − tanh²(c_t), not 1 − h_t²: h_t has the factor o_t.",
                "(1 - np.tanh(c[t]) ** 2)",
                "(1 - h[t] ** 2)",
            ),
            Mistake("The output gate multiplies tanh(c_t), not c_t.", "dh * np.tanh(c[t]) * o[t]", "dh * c[t] * o[t]"),
            *(
                Mistake(
                    f"The derivative of the sigmoid, {gate} (1 − {gate}), is missing at the {name} gate.",
                    f" * {gate}[t] * (1 - {gate}[t])",
                    "",
                )
                for gate, name in (("i", "input"), ("f", "forget"), ("o", "output"))
            ),
            Mistake(
                "The forget gate multiplies the cell before the step, c_(t-1), not c_t.",
                "dc * c_before * f[t]",
                "dc * c[t] * f[t]",
            ),
            Mistake(
                "The derivative of the candidate is 1 − g², not g (1 − g).",
                "dc * i[t] * (1 - g[t] ** 2)",
                "dc * i[t] * g[t] * (1 - g[t])",
            ),
            Mistake("The sign of the loss's gradient h_t − y_t is reversed.", "(h[t] - y[t])", "(y[t] - h[t])"),
        ),
        {"dW_g": ("loss", "W", slice(6, 9)), "dU_g": ("loss", "U", slice(6, 9))},
        steps=("x", "y"),
    ),
    Exercise(
        "E2",
        "One step of a GRU in both conventions",
        ("keeps", "replaces"),
        draw_arrays(W=(9, 2), U=(9, 3), b=(9,), c_n=(3,), x=(2,), h=(3,)),
        (
            Mistake(
                "The convention is reversed: here z near 1 keeps the old state.",
                "keeps = z * h + (1 - z) * n",
                "keeps = (1 - z) * h + z * n",
            ),
            Mistake(
                "The convention is reversed: here z near 1 replaces the old state.",
                "replaces = (1 - z) * h + z * n",
                "replaces = z * h + (1 - z) * n",
            ),
            Mistake(
                "The two gates are exchanged: the first rows of W and U are those of r, the next ones those of z.",
                "r = sigmoid(x_r + u_r)  # blank: the reset gate\n    z = sigmoid(x_z + u_z)",
                "z = sigmoid(x_r + u_r)  # blank: the reset gate\n    r = sigmoid(x_z + u_z)",
            ),
            Mistake("The reset gate also multiplies the second bias c_n.", "r * (u_n + c_n)", "(r * u_n + c_n)"),
            Mistake("The reset gate is missing in the candidate.", "x_n + r * (u_n + c_n)", "x_n + (u_n + c_n)"),
            Mistake(
                "The candidate uses the update gate; it needs the reset gate.",
                "x_n + r * (u_n + c_n)",
                "x_n + z * (u_n + c_n)",
            ),
            Mistake("The candidate is a tanh, not a sigmoid.", "n = np.tanh(", "n = sigmoid("),
        ),
    ),
    Exercise(
        "E4",
        "The derivative of a GRU step",
        ("dh",),
        draw_arrays(U=(9, 3), x=(9,), h=(3,)),
        (
            Mistake("The direct path, diag(z), is missing.", "return direct + through_z", "return through_z"),
            Mistake(
                "The path through the update gate is missing.", "direct + through_z + through_n", "direct + through_n"
            ),
            Mistake(
                "The path through the candidate's product is missing.",
                "through_z + through_n + through_r",
                "through_z + through_r",
            ),
            Mistake("The path through the reset gate is missing.", "through_n + through_r", "through_n"),
            Mistake(
                "The sign of the path through the update gate is reversed: it is (h − n) z (1 − z).",
                "((h - n) * z",
                "((n - h) * z",
            ),
            Mistake(
                "The reset gate r is missing in the path through the candidate's product.",
                "(1 - n**2) * r)",
                "(1 - n**2))",
            ),
            Mistake("The path through the reset gate needs the factor u_n.", "(1 - n**2) * u_n * r", "(1 - n**2) * r"),
            Mistake(
                "U_n is transposed: row j of the derivative belongs to h'_j.",
                "[:, None] * U_n  # blank",
                "[:, None] * U_n.T  # blank",
            ),
        ),
        {"dh": ("step", "h")},
    ),
)
