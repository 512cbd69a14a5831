"""The verdict of each statement. The marked ones (✗) are false as they stand.

Statements that are missing here are left open by the textbook: the files of the chapters say what was found.
"""

from __future__ import annotations

HOLDS = (
    *(
        "A1",
        "A2",
        "A3",
        "A4",
        "A5",
        "A6",
        "B1",
        "B2",
        "B4",
        "B6",
        "C1",
        "C3",
        "C6",
        "C8",
        "C11",
        "D1",
        "D7",
        "D8",
        "D9",
    ),
    *("E1", "E4", "E5", "F1", "F2", "F3", "F4", "F9", "F10", "F13", "F15", "F16", "F17", "F18", "F19"),
    *("G2", "G3", "G5", "G7", "G8", "G9", "G10", "G11", "H1", "H2", "H7", "H8", "H10", "H11", "H12", "H13", "H14"),
)
HOLDS_IF = ("B3", "C2", "D5", "E2", "F6", "F12", "F14", "H9")
REFUTED = ("B8", "B9", "C7", "D2", "D3", "D4", "E3", "F5", "F7", "F11", "F20", "G1", "H6", "H15", "H16")

EXPECTED = {
    **dict.fromkeys(HOLDS, "holds"),
    **dict.fromkeys(HOLDS_IF, "holds if"),
    **dict.fromkeys(REFUTED, "refuted"),
}
