"""Simulated samples of a cluster in OpenMetrics' text format: what samplers and gateways say, and what the recording
rules have made of it. Each node has four cards, a head, and a worker of the head before it."""

CARDS = 4
CODES = ("200", "400", "404", "502", "503")
BUCKETS = ("0.1", "0.5", "1", "2.5", "5", "10", "30", "60", "120", "+Inf")


def node(number):
    return "node%02d" % number


def service(number):
    return "service-%02d" % number


def series(nodes):
    """Yields (metric with labels, kind, value): kind constant; gauge, which moves about its value; counter, which grows
    by its value in a second."""
    for number in range(nodes):
        yield from of_node(number)
        yield from of_service(number, (number + 1) % nodes)
        yield from of_gateway(number)
    for host in ("gate1", "gate2"):
        yield 'up{job="llama_gateway",node="%s"}' % host, "constant", 1
        yield 'llama_gateway_certificate_expires_seconds{node="%s"}' % host, "constant", 4e9
        for name in ("gpt-4o", "old-model", "other"):
            labels = '{instance="%s:8000",name="%s"}' % (host, name)
            yield "llama_gateway_names_unknown_total" + labels, "counter", 0.01
    for name in ("gpt-4o", "old-model", "other"):
        yield 'llama:gateway_names_unknown:asked15m{name="%s"}' % name, "gauge", 9
    labels = '{alertname="LlamaUnitRepaired",alertstate="firing",severity="notice",node="node01",service="service-01"}'
    yield "ALERTS" + labels, "constant", 1


def of_node(number):
    here = 'node="%s"' % node(number)
    yield 'up{job="llama_sampler",%s,instance="%s:9754"}' % (here, node(number)), "constant", 1
    yield 'llama_sampler_info{%s,version="0.2.0"}' % here, "constant", 1
    for part in ("units", "fabric", "cards"):
        yield 'llama_sampler_part_up{%s,part="%s"}' % (here, part), "constant", 1
    for name, kind, value in (
        ("llama_sampler_timestamp_seconds", "counter", 1),
        ("llama_sampler_cards_timestamp_seconds", "counter", 1),
        ("llama_sampler_cards_hung", "constant", 0),
        ("llama_sampler_cpu_seconds_total", "counter", 0.01),
        ("llama_sampler_memory_bytes", "gauge", 2e7),
        ("llama_watchdog_alive", "constant", 1),
        ("llama_clock_synchronized", "constant", 1),
        ("llama_node_held", "constant", 0),
        ("llama:node_held", "constant", 0),
    ):
        yield "%s{%s}" % (name, here), kind, value
    for path, size in (("/", 1e11), ("/var/lib/llama-cluster", 4e12)):
        yield 'llama_disk_free_bytes{%s,path="%s"}' % (here, path), "gauge", size / 3
        yield 'llama_disk_size_bytes{%s,path="%s"}' % (here, path), "constant", size
    fabric = '{%s,interface="ib0"}' % here
    yield "llama_fabric_up" + fabric, "constant", 1
    yield "llama_fabric_speed_bits" + fabric, "constant", 2e11
    yield "llama_fabric_received_bytes_total" + fabric, "counter", 1e8
    yield "llama_fabric_sent_bytes_total" + fabric, "counter", 1e8
    yield "llama_fabric_errors_total" + fabric, "counter", 0.01
    for gpu in range(CARDS):
        card = '%s,gpu="%d"' % (here, gpu)
        yield 'llama_gpu_info{%s,name="H100",uuid="GPU-%s-%d",driver="570"}' % (card, node(number), gpu), "constant", 1
        for name, kind, value in (
            ("utilization_ratio", "gauge", 0.7),
            ("memory_used_bytes", "gauge", 7e10),
            ("memory_total_bytes", "constant", 8.5e10),
            ("power_watts", "gauge", 500),
            ("temperature_celsius", "gauge", 60),
            ("ecc_uncorrected_total", "constant", 0),
            ("foreign_processes", "constant", 0),
            ("foreign_memory_bytes", "constant", 0),
        ):
            yield "llama_gpu_%s{%s}" % (name, card), kind, value
        yield 'llama_gpu_throttled{%s,reason="sw_power_cap"}' % card, "constant", 1
        yield 'llama_gpu_xid_total{%s,xid="94"}' % card, "constant", 1
        yield 'llama_gpu_unit_memory_bytes{%s,unit="llama-head-%s.service"}' % (card, service(number)), "gauge", 7e10


def of_service(number, neighbour):
    """A head here, its worker on the next node."""
    name = service(number)
    for role, prefix, host in (("head", "llama-head-", number), ("worker", "llama-rpc-", neighbour)):
        unit = '{node="%s",unit="%s%s.service",service="%s",role="%s"%%s}' % (node(host), prefix, name, name, role)
        for metric, kind, value in (
            ("llama_unit_active", "constant", 1),
            ("llama_unit_wanted", "constant", 1),
            ("llama_unit_failed", "constant", 0),
            ("llama_unit_restarts_total", "counter", 0.0001),
            ("llama_unit_started_seconds", "constant", 1e9),
            ("llama_watchdog_repairs_total", "counter", 0.0001),
            ("llama_memory_bytes", "gauge", 5e10),
            ("llama_memory_planned_bytes", "constant", 6e10),
        ):
            yield metric + unit % "", kind, value
        yield "llama_watchdog_last_repair_seconds" + unit % ',reason="hangs"', "constant", 1e9
        yield "llama_build_info" + unit % ',build="b11434"', "constant", 1
    there = '{node="%s",service="%s"%%s}' % (node(neighbour), name)
    yield "llama_rpc_fenced" + there % "", "constant", 1
    yield "llama_rpc_worker_clients" + there % "", "constant", 1
    here = '{node="%s",service="%s"%%s}' % (node(number), name)
    yield "llama_model_info" + here % (',unit="llama-head-%s.service",model="m",quant="Q4_K_M"' % name), "constant", 1
    link = here % ',worker="10.0.0.%d:50052"' % neighbour
    yield "llama_rpc_link_up" + link, "constant", 1
    yield "llama_rpc_link_received_bytes_total" + link, "counter", 1e7
    yield "llama_rpc_link_sent_bytes_total" + link, "counter", 1e7
    yield "llama_endpoint_state" + here % ',state="ready"', "constant", 1
    for metric, kind, value in (
        ("llama_endpoint_ready", "constant", 1),
        ("llama_slots", "constant", 8),
        ("llama_slots_busy", "gauge", 5),
        ("llama_context_slot_tokens", "constant", 131072),
        ("llama_context_used_tokens", "gauge", 30000),
        ("llama_prompt_tokens_total", "counter", 900),
        ("llama_generated_tokens_total", "counter", 150),
        ("llama_requests_processing", "gauge", 5),
        ("llama_requests_deferred", "gauge", 2),
        ("llama_busy_without_tokens_seconds", "gauge", 4),
        ("llama_generation_tokens_per_second", "gauge", 40),
        ("llama_baseline_tokens_per_second", "constant", 42),
        ("llama_conversation_ok", "constant", 1),
        ("llama_conversation_timestamp_seconds", "constant", 1e9),
        ("llama:endpoint_wanted", "constant", 1),
        ("llama:endpoint_available", "constant", 1),
    ):
        yield metric + here % "", kind, value
    yield 'llama:worker_known{node="%s",service="%s"}' % (node(neighbour), name), "constant", 1
    yield 'llama:service_available{service="%s"}' % name, "constant", 1
    yield "llama:generation_tokens_per_second:judged" + here % "", "gauge", 40
    for load in ("one", "full"):
        yield "llama:generation_tokens_per_second:baseline" + here % (',load="%s"' % load), "gauge", 40
    # llama-server itself.
    for metric, kind, value in (
        ("llamacpp:tokens_predicted_total", "counter", 150),
        ("llamacpp:prompt_tokens_total", "counter", 900),
        ("llamacpp:requests_processing", "gauge", 5),
    ):
        yield metric + here % ',model="m",job="llama_server/%s"' % name, kind, value
    yield "up" + here % ',model="m",job="llama_server/%s"' % name, "constant", 1
    yield "llama:router_loads:1h" + here % "", "gauge", 4
    yield "llama:router_models_loaded" + here % "", "constant", 1


def of_gateway(number):
    """What both hosts of a gateway count for a service."""
    name = service(number)
    for host in ("gate1", "gate2"):
        here = 'instance="%s:8000",service="%s"' % (host, name)
        for code in CODES:
            yield 'llama_gateway_requests_total{%s,code="%s"}' % (here, code), "counter", 1 if code == "200" else 0.01
        for metric in ("llama_gateway_seconds", "llama_gateway_first_byte_seconds", "llama_gateway_queue_seconds"):
            for place, bucket in enumerate(BUCKETS, 1):
                yield '%s_bucket{%s,le="%s"}' % (metric, here, bucket), "counter", place / len(BUCKETS)
            yield "%s_sum{%s}" % (metric, here), "counter", 5
            yield "%s_count{%s}" % (metric, here), "counter", 1
        yield "llama_gateway_queued{%s}" % here, "gauge", 3
        yield 'llama_gateway_in_flight{%s,node="%s"}' % (here, node(number)), "gauge", 5
        yield 'llama_gateway_endpoint_state{%s,node="%s",state="ready"}' % (here, node(number)), "constant", 1
        for metric in ("retries", "fallbacks", "context_refused"):
            yield "llama_gateway_%s_total{%s}" % (metric, here), "counter", 0.01
    for code in CODES:
        yield 'llama:gateway_requests:rate1m{service="%s",code="%s"}' % (name, code), "gauge", 1
    for metric, value in (
        ("llama:gateway_requests:rate5m", 2),
        ("llama:gateway_errors:rate5m", 0.04),
        ("llama:gateway_seconds:p95_5m", 20),
        ("llama:gateway_first_byte_seconds:p95_5m", 2),
        ("llama:gateway_queue_seconds:p95_5m", 1),
        ("llama:gateway_context_refused:refused15m", 1),
    ):
        yield '%s{service="%s"}' % (metric, name), "gauge", value


def of_a_week(nodes):
    """What the baseline is made of: the tokens/s of a week."""
    for number in range(nodes):
        for load in ("one", "full"):
            yield (
                'llama:generation_tokens_per_second:work{node="%s",service="%s",load="%s"}'
                % (node(number), service(number), load),
                "gauge",
                40,
            )


def lines(found, start, end, step):
    """OpenMetrics' text of samples from start to end, seconds since 1970."""
    times = range(start, end, step)
    for place, (name, kind, value) in enumerate(found):
        if kind == "constant":
            head = "%s %.12g " % (name, value)
            yield "".join("%s%d\n" % (head, at) for at in times)
        elif kind == "gauge":
            # Eleven values around it, which no compression takes for a constant.
            seven = ["%s %.12g " % (name, value * (0.95 + (step_ * 7 + place) % 11 / 100)) for step_ in range(11)]
            yield "".join("%s%d\n" % (seven[at // step % 11], at) for at in times)
        else:
            yield "".join("%s %.12g %d\n" % (name, value * (at - 1.6e9), at) for at in times)
    yield "# EOF\n"
