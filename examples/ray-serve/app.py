"""A Serve application: replicas of an engine behind `warmroute.ray.KVAwareRouter`. `docs/ray.md` goes through it.

The engine is warmroute's simulated one, which needs no accelerator: it has vLLM's API, events and block cache. In front is an
HTTP ingress. Anything that holds a handle of the engine routes by the caches of its replicas.
"""

import json
import subprocess
from typing import AsyncIterator

import aiohttp
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse

BLOCK_SIZE = 16
MODEL = "sim"


@serve.deployment(max_ongoing_requests=16, ray_actor_options={"num_cpus": 0.1})
class Engine:
    """A replica: one engine process, which ends when the replica does."""

    def __init__(self, program: str) -> None:
        anywhere = "tcp://127.0.0.1:0"
        self.process = subprocess.Popen(
            # Killed by the kernel where the replica is killed.
            ["setpriv", "--pdeathsig", "KILL", program, "--model", MODEL, "--block-size", str(BLOCK_SIZE)]
            + ["--events", anywhere, "--replay", anywhere],
            stdout=subprocess.PIPE,
        )
        # The engine's first line says where it listens.
        self.addresses = json.loads(self.process.stdout.readline())
        self.session = None

    def record_replica_metadata(self) -> dict:
        """Tells the routers where this replica's KV events are. Asked once, when the replica is ready."""
        events, replay = self.addresses["events"], self.addresses["replay"]
        return {"kv_events": {"engine": "vllm", "endpoint": events, "replay": replay}}

    def check_health(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the engine has ended with {self.process.returncode}")

    async def generate(self, token_ids: list, max_tokens: int = 16) -> AsyncIterator[dict]:
        """The engine's answer, chunk by chunk. What it refuses, it refuses with a chunk of its own."""
        if self.session is None:
            self.session = aiohttp.ClientSession(f"http://{self.addresses['listen']}")
        replica = serve.get_replica_context().replica_id.unique_id
        body = {"model": MODEL, "prompt": token_ids, "max_tokens": max_tokens, "stream": True}
        body["stream_options"] = {"include_usage": True}
        async with self.session.post("/v1/completions", json=body) as answer:
            if answer.status != 200:
                yield {"replica": replica, "error": await answer.text()}
                return
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    yield {"replica": replica, **json.loads(line[len(b"data: ") :])}

    def __del__(self) -> None:
        self.process.kill()


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Ingress:
    """Takes `{"token_ids": [...], "max_tokens": 16}`; a real one would tokenize here."""

    def __init__(self, engine: DeploymentHandle) -> None:
        self.engine = engine.options(method_name="generate", stream=True)

    async def __call__(self, request: Request) -> JSONResponse:
        answer = await self.answer(await request.json())
        return JSONResponse(answer, status_code=400 if "error" in answer else 200)

    async def answer(self, asked: dict) -> dict:
        # By name: this is where the router looks for token IDs.
        chunks = self.engine.remote(token_ids=asked["token_ids"], max_tokens=asked.get("max_tokens", 16))
        last = [chunk async for chunk in chunks][-1]
        return {name: last[name] for name in ("replica", "usage", "error") if name in last}


def app(args: dict) -> serve.Application:
    """What `config.yaml` names. `program` is the engine's."""
    return Ingress.bind(Engine.bind(args["program"]))
