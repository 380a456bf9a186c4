#!/usr/bin/env python3
"""Writes deploy/grafana-dashboard.json: the panels below as a Grafana dashboard (schema 39, Grafana 10 and later).
Run: tools/make_dashboard.py > deploy/grafana-dashboard.json. Standard library only.
tests/unit/test_deploy.c holds the file's expressions against the metrics that the program writes."""
import json
import sys

SELECT = '{instance=~"$instance"}'
RATE = "$__rate_interval"


def rate(name, by=""):
    return f"sum{' by (' + by + ')' if by else ''} (rate(bathyc_{name}{SELECT}[{RATE}]))"


def total(name, by=""):
    return f"sum{' by (' + by + ')' if by else ''} (bathyc_{name}{SELECT})"


def quantiles(name):
    return [(f"histogram_quantile({q}, sum by (le) (rate(bathyc_{name}_bucket{SELECT}[{RATE}])))", label)
            for q, label in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))]


ROWS = [
    ("Now", [
        ("stat", "Ready", "short", 3, [(total("ready"), "")]),
        ("stat", "Requests/s", "reqps", 4, [(rate("requests_finished_total"), "")]),
        ("stat", "Output tokens/s", "short", 4, [(rate("engine_output_tokens_total"), "")]),
        ("stat", "First token, 90 %", "s", 4, [quantiles("time_to_first_token_seconds")[1][:1] + ("",)]),
        ("stat", "Between tokens, 90 %", "s", 4, [quantiles("inter_token_seconds")[1][:1] + ("",)]),
        ("gauge", "Cache in use", "percentunit", 5, [(f"max (bathyc_kv_usage_ratio{SELECT})", "")]),
    ]),
    ("Traffic", [
        ("timeseries", "HTTP requests by endpoint", "reqps", 8, [(rate("http_requests_total", "endpoint"), "{{endpoint}}")]),
        ("timeseries", "HTTP requests by status", "reqps", 8, [(rate("http_requests_total", "code"), "{{code}}")]),
        ("timeseries", "Open now", "short", 8, [(total("http_open_connections"), "connections"), (total("http_open_requests"), "requests"),
                                                (total("http_open_streams"), "streams")]),
        ("timeseries", "How requests end", "reqps", 8, [(rate("requests_finished_total", "reason"), "{{reason}}")]),
        ("timeseries", "Refused, left, slow", "ops", 8, [
            (rate("http_refused_busy_total"), "queue full"), (rate("http_refused_not_ready_total"), "not ready"),
            (rate("http_refused_key_total"), "key"), (rate("http_client_disconnects_total"), "client left"),
            (rate("http_slow_client_pauses_total"), "slow: paused"), (rate("http_slow_client_cancels_total"), "slow: cancelled")]),
        ("timeseries", "Bytes", "Bps", 8, [(rate("http_received_bytes_total"), "received"), (rate("http_sent_bytes_total"), "sent"),
                                           (total("http_output_buffer_bytes"), "not read yet (bytes)")]),
    ]),
    ("Latency", [
        ("timeseries", "Time to first token", "s", 8, quantiles("time_to_first_token_seconds")),
        ("timeseries", "Between tokens", "s", 8, quantiles("inter_token_seconds")),
        ("timeseries", "Whole request", "s", 8, quantiles("request_seconds")),
        ("timeseries", "Queue", "s", 8, quantiles("queue_seconds")),
        ("timeseries", "Prefill", "s", 8, quantiles("prefill_seconds")),
        ("timeseries", "Decode", "s", 8, quantiles("decode_seconds")),
    ]),
    ("Engine", [
        ("timeseries", "Tokens/s", "short", 8, [(rate("engine_output_tokens_total"), "output"), (rate("engine_prompt_rows_total"), "prompt"),
                                                (rate("engine_wasted_rows_total"), "wasted")]),
        ("timeseries", "Sequences", "short", 8, [(total("requests_running"), "running"), (total("requests_waiting"), "waiting"),
                                                 (total("requests_swapped"), "swapped")]),
        ("timeseries", "Rows of a step", "short", 8, [(rate("engine_rows_total") + " / " + rate("engine_steps_total"), "mean")]),
        ("timeseries", "Where the time goes", "percentunit", 8, [(rate("engine_seconds_total", "part"), "{{part}}")]),
        ("timeseries", "Swaps and failures", "ops", 8, [
            (rate("preemptions_total"), "swapped out"), (rate("resumptions_total"), "back"), (rate("stuck_plans_total"), "stuck steps"),
            (rate("engine_failed_total"), "failed"), (rate("engine_cancelled_total"), "cancelled")]),
        ("timeseries", "Tokens of requests", "short", 8, [
            (rate("prompt_tokens_total") + " / " + rate("requests_finished_total"), "prompt, mean"),
            (rate("output_tokens_total") + " / " + rate("requests_finished_total"), "output, mean"),
            (rate("reasoning_tokens_total") + " / " + rate("requests_finished_total"), "of it reasoning")]),
    ]),
    ("Drafts", [
        ("timeseries", "Accepted of those verified", "percentunit", 8, [
            (rate("draft_accepted_tokens_total") + " / " + rate("draft_tokens_total"), "all"),
            (rate("draft_position_accepted_total", "position") + " / " + rate("draft_position_tokens_total", "position"), "place {{position}}")]),
        ("timeseries", "Tokens of a decode step", "short", 8, [
            ("1 + " + rate("draft_accepted_tokens_total") + " / " + rate("draft_steps_total"), "mean")]),
        ("timeseries", "Draft tokens/s", "short", 8, [(rate("draft_proposed_tokens_total"), "proposed"), (rate("draft_tokens_total"), "verified"),
                                                      (rate("draft_accepted_tokens_total"), "accepted")]),
    ]),
    ("Cache and memory", [
        ("timeseries", "Cache blocks", "short", 8, [(total("kv_blocks_used"), "in use"), (total("kv_blocks_keyed"), "can be found"),
                                                    (total("kv_blocks"), "all")]),
        ("timeseries", "Prompt tokens found in the cache", "percentunit", 8, [
            (f"{rate('prefix_cache_hit_tokens_total')} / ({rate('prefix_cache_hit_tokens_total')} + {rate('engine_prompt_rows_total')} - "
             f"{rate('prefix_cache_replayed_rows_total')})", "found")]),
        ("timeseries", "Snapshots", "ops", 8, [(rate("snapshots_total"), "taken"), (rate("snapshot_hits_total"), "used")]),
        ("timeseries", "Host memory by use", "bytes", 8, [(total("memory_bytes", "use"), "{{use}}"), (total("host_state_bytes"), "swapped and snapshots")]),
        ("timeseries", "Process", "bytes", 8, [(f"sum (process_resident_memory_bytes{SELECT})", "resident")]),
        ("timeseries", "Processor", "short", 8, [(f"sum (rate(process_cpu_seconds_total{SELECT}[{RATE}]))", "cores")]),
    ]),
]


def panel(number, kind, title, unit, targets, x, y, w, h):
    defaults = {"unit": unit, "min": 0}
    if kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    if unit == "percentunit" and kind == "gauge":
        defaults |= {"max": 1, "thresholds": {"mode": "absolute", "steps": [
            {"color": "green", "value": None}, {"color": "orange", "value": 0.8}, {"color": "red", "value": 0.95}]}}
    options = {"timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
               "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"},
               "gauge": {"reduceOptions": {"calcs": ["lastNotNull"]}}}[kind]
    return {"id": number, "type": kind, "title": title, "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"x": x, "y": y, "w": w, "h": h}, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options,
            "targets": [{"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend or "__auto",
                         "datasource": {"type": "prometheus", "uid": "${source}"}} for i, (expr, legend) in enumerate(targets)]}


def main():
    panels, y, number = [], 0, 1
    for title, row in ROWS:
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        number, y, x, h = number + 1, y + 1, 0, 0
        for kind, name, unit, width, targets in row:
            if x + width > 24:
                x, y = 0, y + h
            h = 8 if kind == "timeseries" else 5
            panels.append(panel(number, kind, name, unit, targets, x, y, width, h))
            number, x = number + 1, x + width
        y += h
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    instance = {"name": "instance", "label": "Server", "type": "query", "datasource": {"type": "prometheus", "uid": "${source}"}, "multi": True,
                "includeAll": True, "allValue": ".*", "refresh": 2, "current": {"text": "All", "value": "$__all"},
                "query": {"query": "label_values(bathyc_build_info, instance)", "refId": "servers"}}
    json.dump({"title": "bathyc", "uid": "bathyc", "tags": ["bathyc"], "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s",
               "time": {"from": "now-1h", "to": "now"}, "timezone": "", "templating": {"list": [source, instance]},
               "annotations": {"list": []}, "panels": panels}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
