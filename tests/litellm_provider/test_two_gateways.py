"""Two gateways behind LiteLLM's router as examples/litellm/two-gateways.yaml configures it, and one of them killed."""

import asyncio
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import litellm
import pytest
import yaml

from clover_agent.cli.local import local_gateway

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "litellm" / "two-gateways.yaml"
SESSIONS, ROUNDS, AT_ONCE = 20, 10, 20


@contextmanager
def gateway_process(replay: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that can be killed, and its base URL."""
    command = [sys.executable, "-m", "clover_agent", "serve", "--model", f"replay:{replay}", "--port", "0"]
    flags = ["--served-model-name", "sprout", "--max-queue", "200"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            log = ""
            for line in process.stdout:
                log += line
                if "ready" in line and (found := re.search(r"http://[\d.]+:\d+", log)):
                    break
            else:
                pytest.fail(f"the gateway did not start: {log}")
            yield process, found[0]
        finally:
            process.kill()


def router(urls: list[str]) -> litellm.Router:
    config = yaml.safe_load(EXAMPLE.read_text())
    for deployment, url in zip(config["model_list"], urls, strict=True):
        deployment["litellm_params"]["api_base"] = f"{url}/v1"
        deployment["model_info"] = {"id": url}
    return litellm.Router(model_list=config["model_list"], **config["router_settings"])


async def ask(router: litellm.Router, session: str) -> tuple[str, str | None]:
    """Which gateway answered, and the answer's text; None if it broke off, which only one that had begun may do."""
    stream = await router.acompletion(
        "clover", [{"role": "user", "content": "Say hello."}], stream=True, metadata={"session_id": session}
    )
    text, place = "", stream._hidden_params["model_id"]
    try:
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    except litellm.ServiceUnavailableError:  # the router's word for a stream that broke after some of its text
        assert text, "a request was lost that had not begun to stream"
        return place, None
    return place, text


def test_sessions_stay_and_nothing_is_lost_when_a_gateway_dies(replay_file: Path) -> None:
    """200 requests; when half of them are done one gateway is killed."""
    with ExitStack() as stack:
        gateways = [stack.enter_context(gateway_process(replay_file)) for _ in range(2)]
        served = router([url for _, url in gateways])
        (victim, dead), (_, alive) = gateways
        before: dict[str, set[str]] = defaultdict(set)
        after: Counter[str] = Counter()
        answers: list[str | None] = []

        async def everybody() -> None:
            slots = asyncio.Semaphore(AT_ONCE)

            async def one(session: str) -> None:
                async with slots:
                    place, text = await ask(served, session)
                if victim.poll() is None:
                    before[session].add(place)
                else:
                    after[place] += 1
                answers.append(text)
                if len(answers) == SESSIONS * ROUNDS // 2:
                    victim.kill()
                    victim.wait()

            for session in range(SESSIONS):
                await one(str(session))  # a session's first turn settles where it belongs
            later = [str(session) for _ in range(ROUNDS - 1) for session in range(SESSIONS)]
            await asyncio.gather(*(one(session) for session in later))

        asyncio.run(everybody())
    assert len(answers) == SESSIONS * ROUNDS
    assert all(len(places) == 1 for places in before.values()), before
    assert {place for places in before.values() for place in places} == {dead, alive}
    whole = [text for text in answers if text is not None]
    assert len(set(whole)) == 1
    assert whole[0].startswith("Bom dia")
    assert len(answers) - len(whole) <= AT_ONCE, "only what had begun on the dead gateway may break off"
    assert after[alive] > after[dead]


async def converse(router: litellm.Router, session: str, turns: int) -> tuple[list[tuple[int, int]], set[str]]:
    """(prompt tokens, those of them found in the prefix cache) of each turn, and the gateways that answered."""
    messages = [{"role": "system", "content": f"{session}. {'Be brief. ' * 20}"}]
    usages, places = [], set()
    for turn in range(turns):
        messages.append({"role": "user", "content": f"What is {turn} and {turn}?"})
        answer = await router.acompletion("clover", messages, max_tokens=4, metadata={"session_id": session})
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
        usages.append((answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens))
        places.add(answer._hidden_params["model_id"])
    return usages, places


def test_the_turns_of_a_session_find_their_prefix() -> None:
    """Told by usage, and by the metric of the gateways. Sprout: replays have no states to keep."""
    with local_gateway("sprout") as one, local_gateway("sprout") as other:
        served = router([one, other])

        async def everybody() -> list[tuple[list[tuple[int, int]], set[str]]]:
            return await asyncio.gather(*(converse(served, f"Session {n}", turns=3) for n in range(6)))

        sessions = asyncio.run(everybody())
        metrics = "".join(httpx.get(f"{url}/metrics").text for url in (one, other))
    for usages, places in sessions:
        assert len(places) == 1
        for (before, _), (_, cached) in pairwise(usages):
            assert cached > 0.8 * before
    hits = re.findall(r"^clover:prefix_cache_hits_total\S* (\S+)$", metrics, re.MULTILINE)
    assert sum(map(float, hits)) == sum(cached for usages, _ in sessions for _, cached in usages)
