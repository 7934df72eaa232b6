#!/usr/bin/env python3
"""Judges histories as docs/proof.md describes: judge.py FILE.jsonl.gz…

Prints one line of JSON for each file. Written from that page, without use of the Go program.
"""
import collections
import gzip
import json
import sys

KNOWN = {"wrote", "arrived", "row", "undone", "lane", "fault", "symptom"}


def lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def window(kind):
    if kind in ("relay_killed", "database_cut"):
        return "kill"
    if kind == "answer_lost":
        return "lost_answer"
    if kind == "clock_jump":
        return "clock"
    if kind == "failover" or kind.startswith("database_"):
        return "lost_marks"
    if kind == "lease_lost" or kind.startswith("relay_"):
        return "takeover"
    return None


class History:
    def __init__(self, path):
        source = lines(path)
        self.header = next(source)
        if self.header.get("history") != 1:
            raise ValueError("the format's version is not 1")
        self.events = collections.defaultdict(list)
        for number, event in enumerate(source, 2):
            if event["event"] not in KNOWN:
                raise ValueError(f"line {number}: unknown event {event['event']!r}")
            event["line"] = number
            self.events[event["event"]].append(event)
        self.rows = collections.defaultdict(list)
        for row in self.events["row"]:
            self.rows[row["id"]].append(row)
        self.outcomes = collections.defaultdict(set)
        for write in self.events["wrote"]:
            self.outcomes[write["id"]].add(write["outcome"])
        self.undone = {event["id"] for event in self.events["undone"]}

    def committed(self, id):
        outcomes = self.outcomes.get(id, set())
        if "committed" in outcomes:
            return True
        return id in self.rows and "rolled_back" not in outcomes

    def judge(self):
        arrivals = collections.defaultdict(list)
        for event in self.events["arrived"]:
            arrivals[event["id"]].append(event)
        all_ids = set(self.outcomes) | set(self.rows)
        messages = {id for id in all_ids - self.undone if self.committed(id)}
        missing = messages - set(arrivals)
        kept = {id for id in missing if any(row["state"] in ("error", "scheduled") for row in self.rows.get(id, []))}
        duplicates, windows = self.duplicates()
        fenced, owned = self.fences()
        return {
            "messages": len(messages),
            "faults": self.kinds("fault"),
            "symptoms": self.kinds("symptom"),
            "lost": len(missing) - len(kept),
            "reordered": self.reordered(arrivals),
            "uncommitted": sum(id not in self.undone and not self.committed(id) for id in arrivals),
            "duplicates": duplicates,
            "windows": windows,
            "outside": duplicates - sum(windows.values()),
            "fenced": fenced,
            "owned": owned,
            "kept": len(kept),
            "undone": len(self.undone),
        }

    def kinds(self, name):
        return dict(collections.Counter(event["kind"] for event in self.events[name]))

    def reordered(self, arrivals):
        if not self.header.get("ordered"):
            return 0
        keys = collections.defaultdict(list)
        for id, of in arrivals.items():
            first = of[0]
            if first.get("key") and id not in self.undone and self.committed(id):
                keys[first["key"]].append((first["line"], first.get("number", 0)))
        wrong = 0
        for firsts in keys.values():
            highest = 0
            for _, number in sorted(firsts):
                wrong += number <= highest
                highest = max(highest, number)
        return wrong

    def causes(self):
        senders = {event.get("relay", "") for event in self.events["arrived"]}
        limit = self.header.get("unsettled", 0)
        found = []
        for event in self.events["fault"] + self.events["symptom"]:
            opens = window(event["kind"])
            if opens is None:
                continue
            left = float("inf")
            if limit and opens in ("kill", "takeover"):
                left = limit if event.get("relay") else limit * len(senders)
            found.append({"kind": event["kind"], "at": event.get("at", 0), "line": event["line"], "relay": event.get("relay", ""), "window": opens, "left": left})
        found.sort(key=lambda cause: (-cause["at"], cause["line"]))
        return found

    def duplicates(self):
        causes, windows, seen, count = self.causes(), collections.Counter(), {}, 0
        for event in self.events["arrived"]:
            earlier = seen.setdefault(event["id"], [])
            if earlier:
                count += 1
                if not self.header.get("exact"):
                    found = self.explanation(causes, earlier, event)
                    if found:
                        windows[found] += 1
            earlier.append(event)
        return count, dict(windows)

    def explanation(self, causes, earlier, again):
        for cause in causes:
            if cause["left"] > 0 and explains(cause, earlier, again):
                cause["left"] -= 1
                return cause["window"]
        for row in self.rows.get(again["id"], []):
            if row.get("attempts", 0) > 0 or row.get("reason") in ("unknown", "timeout"):
                return "lost_answer"
        return None

    def fences(self):
        """Walks through each lane's views and marks in the order of their times."""
        if self.header.get("claim") != "lanes":
            return 0, 0
        lanes = collections.defaultdict(list)
        for view in self.events["lane"]:
            lanes[view["lane"]].append((view.get("at", 0), 1, view["line"], view))
        for row in self.events["row"]:
            if row["state"] == "done" and row.get("relay") and row.get("at") and "lane" in row:
                lanes[row["lane"]].append((row["at"], 0, row["line"], row))
        fenced = owned = 0
        for of in lanes.values():
            of.sort(key=lambda entry: entry[:3])
            before, waiting = None, []
            for _, is_view, _, entry in of:
                if not is_view:
                    waiting.append(entry["relay"])
                    continue
                lease = (entry.get("fence", 0), entry.get("relay", ""))
                if lease == before and lease[1]:
                    owned += sum(relay == lease[1] for relay in waiting)
                    fenced += sum(relay != lease[1] for relay in waiting)
                before, waiting = lease, []
        return fenced, owned


def explains(cause, earlier, again):
    if again.get("at", 0) and cause["at"] > again["at"]:
        return False
    for arrival in earlier:
        if arrival.get("at", 0) and arrival["at"] > cause["at"] + 60:
            continue
        if cause["kind"] == "relay_killed" and arrival.get("relay", "") == again.get("relay", ""):
            continue
        if cause["relay"] in ("", arrival.get("relay", "")):
            return True
        if cause["window"] != "lost_answer" and cause["relay"] == again.get("relay", ""):
            return True
    return False


def main():
    for path in sys.argv[1:]:
        try:
            result = History(path).judge()
        except (ValueError, KeyError, OSError, EOFError) as error:
            sys.exit(f"{path}: {error}")
        print(json.dumps({"file": path} | result, sort_keys=True))


if __name__ == "__main__":
    main()
