from hypothesis import given
from hypothesis import strategies as st

from clover_agent.parsing import Verbatim
from clover_agent.types import Piece, TextDelta

pieces = st.builds(Piece, st.text(min_size=1)) | st.sampled_from(["<think>", "<tool_call>"]).map(lambda s: Piece(s, s))


@given(st.lists(pieces))
def test_everything_is_text(said: list[Piece]) -> None:
    parser = Verbatim()
    events = parser.feed(said)
    assert all(isinstance(event, TextDelta) for event in events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "".join(p.text for p in said)
    assert (parser.thinking, parser.open_call, parser.flush()) == (False, False, [])
