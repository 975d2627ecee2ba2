"""The vectors that hold for the core hold through the component."""

import json
from pathlib import Path

import pytest

from warmroute import Cleared, Index, Removed, Stored, Weights, Worker
from warmroute._component import Instance
from warmroute.index import Variant, record
from warmroute.tokens import encode_tokens

CRATES = Path(__file__).parents[2] / "crates"


def load(path: str) -> dict:
    return json.loads((CRATES / path).read_text())


HASHES = load("routing/tests/data/dynamo_hashes.json")["hash_vectors"]
SCENARIOS = load("index/tests/data/radix_scenarios.json")["radix_scenarios"]
COSTS = load("routing/tests/data/dynamo_cost.json")["cases"]


@pytest.mark.parametrize("vector", HASHES, ids=lambda vector: vector["name"])
def test_hashes_equal_dynamos(vector: dict) -> None:
    blocks = len(vector["tokens"]) // vector["block_size"]
    infos = vector.get("block_mm_infos")
    media = []
    if infos is not None:
        for info in (infos + [None] * blocks)[:blocks]:
            media.append([thing["mm_hash"] for thing in info["mm_objects"]] if info else [])
    namespace = record(lora=vector.get("lora_name"), salt=vector.get("cache_namespace"))
    extras = record(media=media, eagle=bool(vector.get("is_eagle")))
    hashes = Instance().call(
        "hashing", "hash-tokens", encode_tokens(vector["tokens"]), vector["block_size"], namespace, extras
    )
    assert hashes.blocks == [int(hash) for hash in vector["block_hashes"]]
    assert hashes.sequences == [int(hash) for hash in vector["sequence_hashes"]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_scenarios_of_dynamos_tree_give_the_exact_depths(scenario: dict) -> None:
    index = Index(block_size=16)
    for step in scenario["steps"]:
        ranks = [worker for worker in index.workers() if worker.id == step.get("worker_id")]
        if step["op"] == "event":
            worker = Worker(step["worker_id"], step["event"]["dp_rank"])
            assert index.add_worker(worker)
            assert index.apply(worker, [event(step["event"]["data"])], now_ms=0).failed == []
        elif step["op"] == "clear_all_blocks":
            assert all(index.reset_worker(worker) for worker in ranks)
        elif step["op"] == "remove_worker":
            assert all(index.remove_worker(worker) for worker in ranks)
        else:
            found = index.matches_of_blocks(step["local_hashes"])
            scores = sorted([worker.id, worker.rank, depths.gpu] for worker, depths in found.items())
            assert scores == sorted(step["exact_scores"])


def event(data):
    if data == "cleared" or "cleared" in data:
        return Cleared()
    if "removed" in data:
        return Removed(data["removed"]["block_hashes"])
    stored = data["stored"]
    return Stored(
        hashes=[block["block_hash"] for block in stored["blocks"]],
        blocks=[block["tokens_hash"] for block in stored["blocks"]],
        parent=stored["parent_hash"],
    )


@pytest.mark.parametrize("case", COSTS, ids=lambda case: case["name"])
def test_costs_equal_dynamos_to_three_decimals(case: dict) -> None:
    def weight(name: str, default: float) -> float:
        return float(case["env"].get(name, default))

    weights = {
        "prefill-scale": weight("DYN_ROUTER_PREFILL_LOAD_SCALE", 1.0),
        "gpu-credit": weight("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", 1.0),
        "cpu-credit": Weights().cpu_credit,
        "disk-credit": Weights().disk_credit,
        "credit-decay": 0.0,
        "request-weight": weight("DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT", 0.0),
    }
    instance, dynamo = Instance(), case["dynamo"]
    prompt_blocks = dynamo["isl"] // case["block_size"]
    for worker, expected in case["formula_logits"].items():
        told, overlap = dynamo["potential_loads"][worker], dynamo["overlap"][worker]
        depths = record(
            gpu=overlap["device_blocks"],
            cpu=overlap["host_pinned_blocks"],
            disk=overlap["disk_blocks"],
            external=overlap["disk_blocks"],
        )
        loaded = {
            "requests": told["active_requests"],
            "prefill-tokens": case["active_prefill_tokens"][worker],
            # Dynamo's figure has this prompt's blocks in it.
            "blocks": told["potential_decode_blocks"] - prompt_blocks,
        }
        question = {
            "prompt-tokens": dynamo["isl"],
            "block-size": case["block_size"],
            "depths": depths,
            "load": record(**loaded),
            "least-prefill-tokens": 0,
        }
        cost = instance.call("router", "cost-of", Variant("cost", record(**weights)), record(**question))
        assert cost.first == pytest.approx(expected, abs=0.000_51)
