"""The application in a real Ray: four replicas of the simulated engine, killed, scaled and asked nonsense.

Run by `cargo xtask test --ray`, which says in `WARMROUTE_SIMENGINE` where the engine is.
"""

import asyncio
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator

import pytest
import ray
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema

import app as example
from warmroute.ray import KVAwareRouter, worker_id

DEADLINE_S = 120
SELECT_TIMEOUT_S = 5.0
PROGRAM = os.environ["WARMROUTE_SIMENGINE"]
PREFIX_BLOCKS = 20


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"after {deadline_s} s still not: {what}"
        time.sleep(0.05)


class Application:
    """The running application, asked from this process: its router is here."""

    def __init__(self) -> None:
        self.dice = random.Random(7)
        self.config = yaml.safe_load(Path(example.__file__).with_name("config.yaml").read_text())
        self.scale(4)

    def scale(self, replicas: int) -> None:
        """Deploys that many replicas. Those that run and are wanted go on."""
        application = self.config["applications"][0]
        application["args"]["program"] = PROGRAM
        engine = application["deployments"][0]
        engine.update(num_replicas=replicas, health_check_period_s=1, graceful_shutdown_wait_loop_s=0.1)
        # A machine that is busy must not make a selection late.
        engine["request_router_config"]["request_router_kwargs"]["select_timeout_s"] = SELECT_TIMEOUT_S
        serve.context._get_global_client().deploy_apps(ServeDeploySchema.model_validate(self.config))
        until(lambda: serve.status().applications["llm"].status == "RUNNING", "the application runs")
        handle = serve.get_deployment_handle("Engine", "llm")
        self.handle = handle.options(method_name="generate", stream=True)
        # The router comes with the first request.
        self.ask([1])
        until(lambda: len(self.replicas()) == replicas, f"{replicas} replicas are routed to")
        until(lambda: len(self.router._index.workers()) == replicas, f"{replicas} workers are indexed")

    @property
    def router(self) -> KVAwareRouter:
        """The router of this process's handle."""
        return self.handle._router._asyncio_router.request_router

    def replicas(self) -> set:
        """The replicas that are routed to."""
        return {replica_id.unique_id for replica_id in self.router.curr_replicas}

    def ask(self, token_ids, max_tokens: int = 2) -> dict:
        """The last chunk of an answer."""
        return list(self.handle.remote(token_ids=token_ids, max_tokens=max_tokens))[-1]

    def prefix(self) -> list:
        """A prefix that nobody has seen."""
        return [self.dice.randrange(50_000) for _ in range(PREFIX_BLOCKS * example.BLOCK_SIZE)]

    def placed(self, prefix: list) -> str:
        """Asks for a prefix, and waits until its blocks are known to be where it went."""
        replica = self.ask(prefix)["replica"]
        until(lambda: replica in self.holders(prefix), "a replica's events are indexed")
        return replica

    def holders(self, prefix: list) -> set:
        """The replicas that hold all of a prefix."""
        by_worker = {worker_id(replica_id): replica_id.unique_id for replica_id in self.router.curr_replicas}
        found = self.router._index.matches(prefix).items()
        return {by_worker.get(worker.id) for worker, depths in found if depths.gpu == PREFIX_BLOCKS}

    def kill(self, replica: str) -> None:
        """Kills a replica's process, as the machine would."""
        name = next(one.to_full_id_str() for one in self.router.curr_replicas if one.unique_id == replica)
        ray.kill(ray.get_actor(name, namespace="serve"))


class Stream:
    """Requests without pause from a few threads, until it ends; none of them may fail."""

    def __init__(self, application: Application, prompts: list, threads: int = 3) -> None:
        self.application, self.prompts = application, prompts
        self.ended = threading.Event()
        self.pool = ThreadPoolExecutor(threads)
        self.answers: list = []
        self.running = [self.pool.submit(self.run, number) for number in range(threads)]

    def run(self, number: int) -> None:
        dice = random.Random(number)
        while not self.ended.is_set():
            prompt = dice.choice(self.prompts) + [dice.randrange(50_000) for _ in range(20)]
            self.answers.append(self.application.ask(prompt))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        for running in self.running:
            running.result()
        assert all("usage" in answer for answer in self.answers)

    def goes_on(self, more: int = 30) -> None:
        """Waits until some more have been answered."""
        wanted = len(self.answers) + more
        until(lambda: len(self.answers) >= wanted or any(one.done() for one in self.running), "requests are answered")


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    try:
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=os.environ["WARMROUTE_RAY_DIR"],
            log_to_driver=False,
        )
        # The ingress is asked by its handle: a proxy would be one process more on a small machine.
        serve.start(proxy_location="Disabled")
        yield Application()
    finally:
        serve.shutdown()
        ray.shutdown()


def no_load(application: Application) -> bool:
    return not any(any(load) for load in application.router._kv_router.loads().values())


def test_prompts_with_a_shared_prefix_go_to_the_replica_that_holds_it(application: Application) -> None:
    prefixes = [application.prefix() for _ in range(8)]
    homes = [application.placed(prefix) for prefix in prefixes]
    assert len(set(homes)) >= 3, "prompts that nobody holds are spread"
    for turn in range(4):
        for prefix, home in zip(prefixes, homes):
            answer = application.ask(prefix + [turn] * 20)
            assert answer["replica"] == home
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached >= len(prefix), "the engine's own word"


def test_token_lists_with_invalid_ids_and_requests_without_any_are_answered(application: Application) -> None:
    for tokens in ([-1], [2**32], [1, None, 3], ["a"], [1.5], [[1, 2]], [], None, "a text", {"x": 1}, [2**70] * 40):
        answer = application.ask(tokens)
        # What it makes of them is the engine's.
        assert "error" in answer or "usage" in answer, tokens
    assert list(application.handle.remote([1, 2, 3]))[-1]["usage"], "token IDs by position are not looked at"
    until(lambda: no_load(application), "no load is left", 20)


def test_a_selection_that_fails_or_hangs_costs_no_request(application: Application) -> None:
    router = application.router

    async def raising(*_):
        raise RuntimeError("selection is down")

    async def hanging(*_):
        await asyncio.Event().wait()

    async def lost(*_):
        return [5]

    async def nonsense(*_):
        return "nonsense"

    try:
        for broken in (raising, hanging, lost, nonsense):
            router.select_worker = broken
            router._select_timeout_s = 0.05
            assert application.ask(application.prefix())["usage"], broken
    finally:
        del router.select_worker
        router._select_timeout_s = SELECT_TIMEOUT_S


def test_load_is_booked_until_the_first_item_and_until_the_end(application: Application) -> None:
    prefix = application.prefix()
    stream = iter(application.handle.remote(token_ids=prefix, max_tokens=500))
    first = next(stream)
    replica = next(one for one in application.router.curr_replicas if one.unique_id == first["replica"])
    loads = {worker.id: load for worker, load in application.router._kv_router.loads().items()}
    load = loads[worker_id(replica)]
    assert (load.requests, load.prefill_tokens, load.blocks) == (1, 0, PREFIX_BLOCKS)
    for _ in stream:
        pass
    until(lambda: no_load(application), "the load is released")


def test_killing_a_replica_fails_no_request(application: Application) -> None:
    prefix = application.prefix()
    dead = application.placed(prefix)
    before = application.replicas()
    application.kill(dead)
    # Nobody has told the router yet: it sends the first of these to the dead replica, and then elsewhere.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda turn: application.ask(prefix + [turn] * 20), range(16)))
    assert all(answer["usage"] for answer in answers)
    assert dead not in {answer["replica"] for answer in answers}
    assert dead not in application.holders(prefix)
    until(lambda: len(application.replicas() - {dead}) == 4, "another replica is in its place")
    newcomer = (application.replicas() - before).pop()
    follows(application, newcomer)


def follows(application: Application, newcomer: str) -> None:
    """Prompts that nobody holds reach a replica that is new, and its events are heard."""

    def reached() -> bool:
        prefix = application.prefix()
        return application.placed(prefix) == newcomer

    until(reached, "a replica that is new takes part")


def test_scaling_from_two_to_four_and_back_fails_no_request(application: Application) -> None:
    application.scale(2)
    prefixes = [application.prefix() for _ in range(6)]
    homes = [application.placed(prefix) for prefix in prefixes]
    before = application.replicas()
    with Stream(application, prefixes) as stream:
        stream.goes_on()
        application.scale(4)
        stream.goes_on()
        assert before < application.replicas(), "those that ran go on"
        assert homes[0] in application.holders(prefixes[0]), "and are known to hold what they held"
        for newcomer in application.replicas() - before:
            follows(application, newcomer)
        application.scale(2)
        stream.goes_on()
    assert len(stream.answers) > 100
    until(lambda: no_load(application), "no load is left", 20)


def test_the_ingress_passes_token_ids_by_name(application: Application) -> None:
    prefix = application.prefix()
    ingress = serve.get_app_handle("llm")

    def ask(token_ids: list) -> dict:
        return ingress.answer.remote({"token_ids": token_ids, "max_tokens": 2}).result(timeout_s=DEADLINE_S)

    first = ask(prefix)
    until(lambda: first["replica"] in application.holders(prefix), "the replica's events are indexed")
    # Its router is another one, in its own process, which hears the same events.
    until(lambda: ask(prefix + [1] * 20)["usage"]["prompt_tokens_details"]["cached_tokens"], "the prefix is found again")
    assert [ask(prefix + [turn] * 20)["replica"] for turn in range(5)] == [first["replica"]] * 5
    assert "error" in ask([-1])
