"""Which positions are unmasked in a step. Pure functions of confidences; knows no grammar and no tensors."""

from collections.abc import Sequence

from clover_agent.types import Fallback


def select(
    confidence: Sequence[float], ends: Sequence[bool], *, threshold: float, fallback: Fallback | None
) -> list[int]:
    """Indices of the masked rows to unmask now, ascending, out of rows in order of position.

    A row passes at `confidence >= threshold`. If none does, `fallback` names the one that is unmasked all the same
    (None: no row is). `ends[i]` tells that row i proposes an end token. Such a row waits until no masked row is left
    of it, and what is right of a confident end token waits with it: an early end of turn fixes nothing.
    """
    chosen: list[int] = []
    reach = len(confidence)
    for row, value in enumerate(confidence):
        if value < threshold:
            continue
        if ends[row]:
            if len(chosen) == row:
                chosen.append(row)
            reach = row
            break
        chosen.append(row)
    if chosen or fallback is None or not confidence:
        return chosen
    if fallback == "leftmost":
        return [0]
    rivals = [row for row in range(reach) if row == 0 or not ends[row]]
    return [max(rivals, key=lambda row: confidence[row])]
