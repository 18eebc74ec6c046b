"""What a process reports about its own work: counters, traces, log lines, and text that is safe to
show.

It depends on nothing else in evervec, so that everything may use it. `evervec.maintenance.metrics`
exposes the counters to Prometheus.
"""
