# SPDX-License-Identifier: Apache-2.0
"""/metrics as Prometheus reads it: names and types that dashboards know, counters that only rise, nibble's own facts."""

import math
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

COUNTERS = ["num_preemptions", "prompt_tokens", "prompt_tokens_cached", "generation_tokens", "prefix_cache_queries",
            "prefix_cache_hits", "request_success"]
GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"]
HISTOGRAMS = ["time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
              "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
              "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
              "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n",
              "request_params_max_tokens", "request_prefill_kv_computed_tokens", "iteration_tokens_total"]


def families(server):
    return {family.name: family for family in text_string_to_metric_families(server.get("/metrics"))}


def samples(server):
    """Each sample's value by its name and labels."""
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in families(server).values() for sample in family.samples}


def settled(server):
    """The samples once the last request has left the server."""
    server.wait_until(lambda: server.load[:2] == (0, 0))
    return samples(server)


@pytest.mark.parametrize("kind, names", [("counter", COUNTERS), ("gauge", GAUGES), ("histogram", HISTOGRAMS)])
def test_names_types_and_labels(server, kind, names):
    found = families(server)
    for name in names:
        family = found[f"vllm:{name}"]
        assert family.type == kind and family.documentation and family.samples, name
        assert all(sample.labels["model_name"] == server.model and sample.labels["engine"] == "0" for sample in family.samples)


def test_every_family_is_told_once(server):
    text = server.get("/metrics")
    for mark in ("# HELP ", "# TYPE "):
        names = [line.split(" ")[2] for line in text.splitlines() if line.startswith(mark)]
        assert len(names) == len(set(names)) == len(families(server))


def test_a_request_is_counted(server):
    before = settled(server)
    usage = server.complete("One two three four five six seven", max_tokens=5, ignore_eos=True)["usage"]
    after = settled(server)

    def rise(name, **labels):
        key = (name, *sorted({"model_name": server.model, "engine": "0", **labels}.items()))
        return after[key] - before[key]

    assert usage["completion_tokens"] == 5
    assert rise("vllm:prompt_tokens_total") == usage["prompt_tokens"]
    assert rise("vllm:generation_tokens_total") == 5
    assert rise("vllm:request_success_total", finished_reason="length") == 1
    assert rise("vllm:request_success_total", finished_reason="stop") == 0
    assert rise("vllm:request_prompt_tokens_sum") == usage["prompt_tokens"]
    assert rise("vllm:request_generation_tokens_sum") == 5 and rise("vllm:request_generation_tokens_count") == 1
    assert rise("vllm:time_to_first_token_seconds_count") == rise("vllm:e2e_request_latency_seconds_count") == 1
    assert rise("vllm:inter_token_latency_seconds_count") == 4
    assert rise("vllm:iteration_tokens_total_sum") > 0
    assert 0 < rise("vllm:time_to_first_token_seconds_sum") <= rise("vllm:e2e_request_latency_seconds_sum")


def test_counters_and_histograms_only_rise(server):
    before = samples(server)
    server.complete("Hello", max_tokens=4)
    server.ask("/nowhere")
    after = samples(server)
    rising = {name for name, family in families(server).items() if family.type in ("counter", "histogram")}
    for key, value in before.items():
        name = key[0]
        if any(name.startswith(start) for start in rising):
            assert after[key] >= value, key


def test_histograms_add_up(server):
    server.complete("A", max_tokens=2)
    for family in families(server).values():
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            one = series.setdefault(tuple(sorted(labels.items())), {"bounds": [], "counts": []})
            if sample.name.endswith("_bucket"):
                one["bounds"].append(float(sample.labels["le"]))
                one["counts"].append(sample.value)
            else:
                one[sample.name.rsplit("_", 1)[1]] = sample.value
        for one in series.values():
            assert one["bounds"] == sorted(set(one["bounds"])) and one["bounds"][-1] == math.inf, family.name
            assert one["counts"] == sorted(one["counts"]) and one["counts"][-1] == one["count"], family.name


def test_http_requests(server):
    def count(**labels):
        return sum(value for key, value in samples(server).items()
                   if key[0] == "http_requests_total" and labels.items() <= dict(key[1:]).items())

    models, lost = count(method="GET", status="200", handler="/v1/models"), count(status="404")
    server.ask("/v1/models")
    assert server.ask("/no/such/" + "path" * 50).status == 404
    server.ask("/no/such/other/path")
    assert count(method="GET", status="200", handler="/v1/models") == models + 1
    assert count(status="404") == lost + 2
    handlers = {dict(key[1:])["handler"] for key in samples(server) if key[0] == "http_requests_total"}
    assert not any("such" in handler for handler in handlers)


def test_the_plan_is_reported(server):
    plan = server.ask("/v1/plan").json
    found = families(server)
    bits = {(sample.labels["layer"], sample.labels["side"]): sample.value
            for sample in found["nibble:layer_kv_bits"].samples}
    assert len(bits) == 2 * len(plan["layers"])
    assert all(3 <= value <= 33 for value in bits.values())
    told = {(sample.labels["op"], sample.labels["load"], sample.labels["kernel"]) for sample in found["nibble:kernel_info"].samples}
    assert told == {(row["op"], row["tokens"], row["kernel"]) for row in plan["kernels"]}
    assert set(plan["layers"][0]["kernels"].values()) <= {kernel for op, load, kernel in told}
    build, = found["nibble:build_info"].samples
    assert build.labels["device"] == plan["device"] and build.labels["version"] and build.labels["compiler"]
    cache, = found["vllm:cache_config_info"].samples
    tokens = found["nibble:cache_tokens"].samples[0].value
    assert tokens >= 2048 and int(cache.labels["block_size"]) * int(cache.labels["num_gpu_blocks"]) == pytest.approx(tokens, abs=16)
    assert cache.labels["cache_dtype"] == "auto" and cache.labels["enable_prefix_caching"] == "True"
    assert found["nibble:self_test_passed"].samples[0].value == 1


def test_process(server):
    found = samples(server)
    assert 0 <= time.time() - found[("process_start_time_seconds",)] < 3600
    assert found[("process_resident_memory_bytes",)] > 1 << 20 and found[("process_cpu_seconds_total",)] > 0
