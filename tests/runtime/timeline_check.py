#!/usr/bin/env python3
"""Checks a timeline file: timeline_check.py FILE [--allow-lost-flows]

It is JSON; every process and every thread that has an event has a name; on each thread times do
not go back and spans nest; every flow has one beginning and one end, and the beginning is earlier;
every task that has a run's number is one that was dispatched. Prints what is wrong and exits 1
where something is.
"""
import collections
import json
import sys

faults = []


def fault(text):
    if len(faults) < 50:
        faults.append(text)


def ns(microseconds):
    return round(microseconds * 1000)


def check_thread(where, events):
    last = None
    ends = []
    for event in events:
        start = ns(event['ts'])
        if start < 0:
            fault(f'{where}: {event["name"]} before the beginning')
        if last is not None and start < last:
            fault(f'{where}: {event["name"]} at {start} ns comes after one at {last} ns')
        last = start
        if event['ph'] != 'X':
            continue
        length = ns(event['dur'])
        if length < 1:
            fault(f'{where}: {event["name"]} has no length')
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and start + length > ends[-1]:
            fault(f'{where}: {event["name"]} ends at {start + length} ns, outside the span that '
                  f'ends at {ends[-1]} ns')
        ends.append(start + length)


def check_flows(events):
    flows = collections.defaultdict(lambda: ([], []))
    for event in events:
        if 'bind_id' not in event:
            continue
        out, into = event.get('flow_out', False), event.get('flow_in', False)
        if out == into:
            fault(f'{event["name"]}: a flow without a direction')
        flows[event['bind_id']][1 if into else 0].append(event)
    for flow, (begins, ends) in flows.items():
        if len(begins) != 1 or len(ends) != 1:
            fault(f'flow {flow} has {len(begins)} beginnings and {len(ends)} ends')
            continue
        begin, end = begins[0], ends[0]
        if ns(begin['ts']) > ns(end['ts']):
            fault(f'flow {flow} goes back in time')
        if begin['cat'] != 'dispatch' or end['cat'] != 'task':
            fault(f'flow {flow} leads from {begin["cat"]} to {end["cat"]}')
        for key in ('run', 'task', 'ticket'):
            if begin['args'][key] != end['args'][key]:
                fault(f'flow {flow}: another {key}')
        if begin['name'] != end['args'].get('callable', end['name'].split(' (')[0]):
            fault(f'flow {flow}: {begin["name"]} became {end["name"]}')


def check(trace):
    events = trace['traceEvents']
    names, threads = {}, collections.defaultdict(list)
    for event in events:
        if event['ph'] == 'M':
            if event['name'] in ('process_name', 'thread_name'):
                key = (event['name'], event['pid'])
                key += () if event['name'] == 'process_name' else (event['tid'],)
                if key in names:
                    fault(f'{key} is named twice')
                names[key] = event['args']['name']
        elif event['ph'] in ('X', 'i'):
            threads[event['pid'], event['tid']].append(event)
        else:
            fault(f'an event of kind {event["ph"]}')
    for pid, tid in threads:
        if not names.get(('process_name', pid)):
            fault(f'process {pid} has no name')
        if not names.get(('thread_name', pid, tid)):
            fault(f'thread {tid} of process {pid} has no name')
    for (pid, tid), own in threads.items():
        check_thread(f'process {pid} thread {tid}', own)
    check_flows(events)
    if len({tid for _, tid in threads}) != len(threads):
        fault('two threads have one number')


with open(sys.argv[1], encoding='utf-8') as file:
    check(json.load(file))
for text in faults:
    print(text)
sys.exit(1 if faults else 0)
