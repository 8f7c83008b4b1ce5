#!/usr/bin/env python3
"""held-beside.py PREDICTED MEASURED: two exports of `lapstrake lab export --json` of one plan, beside each other."""
import json
import statistics
import sys


def figures(path):
    """By array, load and phase: the median over runs of what was done over the whole time."""
    values = {}
    for case in json.load(open(path))["experiments"][-1]["cases"]:
        for run in case["runs"]:
            for phase in run["phases"]:
                name = (case["subject"]["name"], f"{case['workload']['name']} {phase['name']}".strip())
                values.setdefault(name, []).append(phase["value"])
    return {name: statistics.median(found) for name, found in values.items()}


said, was = figures(sys.argv[1]), figures(sys.argv[2])
print(f"{'array':10} {'load':16} {'measured':>10} {'predicted':>10}   error")
errors = []
for (array, load), predicted in said.items():
    if (array, load) not in was:
        print(f"{array:10} {load:16}  NOT RUN: no run succeeded")
        continue
    measured = was[array, load]
    scale = 1e6 if measured > 1e5 else 1
    errors.append(abs(predicted / measured - 1))
    error = 100 * (predicted / measured - 1)
    print(f"{array:10} {load:16} {measured / scale:10.2f} {predicted / scale:10.2f} {error:+6.1f} %")
if errors:
    near = sum(error <= 0.2 for error in errors)
    print(f"median error {100 * statistics.median(errors):.1f} %, {near} of {len(errors)} within 20 %")
