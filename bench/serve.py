"""Throughput and latency of `ppengine serve`: python bench/serve.py --model DIR [--clients 1,8,32] [--prompt-tokens 128] [--new-tokens 64]
Starts the server on a free port, or measures one that runs with --url (any OpenAI-compatible server). Prompts are random token numbers, each
client asks again as soon as it has its answer, and a JSON line comes per number of clients. Further lines with
  --prefix 512    the time to the first token of two requests that begin with the same so many tokens
  --http          what HTTP adds to a request: a client's time on a connection that stays, less the generator's own (from /metrics)
  --repetitive    one client whose text repeats itself: for servers with and without --lookup
  --transformers  the same work by transformers' generate(), all clients' prompts as one batch, before and after the server
Standard library only, but for --transformers."""
import argparse
import json
import random
import re
import selectors
import socket
import statistics
import subprocess
import time
import urllib.parse


def request_bytes(body):
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


class Client:
    """One connection that stays; streams one answer after the other."""

    def __init__(self, where, name):
        self.socket, self.name = socket.create_connection(where), name
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, prompt, new_tokens):
        body = {"prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        if self.name:
            body["model"] = self.name
        self.begin, self.first, self.tail = time.perf_counter(), None, b""
        self.socket.sendall(request_bytes(body))

    def read(self):
        """What has come; true at the end of the answer."""
        piece = self.socket.recv(65536)
        if not self.first and b"data: {" in piece:
            self.first = time.perf_counter() - self.begin
        if not piece or (self.tail == b"" and not piece.startswith(b"HTTP/1.1 200")):
            raise RuntimeError(piece.decode(errors="replace")[:500] or "the server has closed the connection")
        self.tail = (self.tail + piece)[-64:]
        if not self.tail.endswith(b"\r\n0\r\n\r\n"):  # the last chunk
            return False
        self.seconds = time.perf_counter() - self.begin
        return True


def answer(client, prompt, new_tokens):
    client.ask(prompt, new_tokens)
    while not client.read():
        pass
    return client.first, client.seconds


def measure(where, options, clients):
    """Clients in one thread, so that they take little from the server."""
    def prompt():
        return [random.randrange(1, options.vocabulary) for _ in range(options.prompt_tokens)]

    selector, left, results = selectors.DefaultSelector(), clients * options.rounds - clients, []
    everyone = [Client(where, options.name) for _ in range(clients)]
    begin = time.perf_counter()
    for client in everyone:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.ask(prompt(), options.new_tokens)
    while len(results) < clients * options.rounds:
        for key, _ in selector.select():
            client = key.data
            if client.read():
                results.append((client.first, client.seconds))
                if left > 0:
                    left -= 1
                    client.ask(prompt(), options.new_tokens)
    seconds = time.perf_counter() - begin
    burst = sorted(first for first, _ in results[:clients])
    return {"clients": clients, "requests": len(results), "tokens_per_second": round(len(results) * options.new_tokens / seconds, 1),
            "first_token_seconds": round(statistics.median(r[0] for r in results), 4), "first_token_of_all_at_once": round(burst[-1], 4),
            "request_seconds": round(statistics.median(r[1] for r in results), 4)}


def shared_prefix(where, options):
    """Two requests with another end each; the median of five such pairs."""
    client, first, second = Client(where, options.name), [], []
    for _ in range(5):
        head = [random.randrange(1, options.vocabulary) for _ in range(options.prefix)]
        for times in first, second:
            times.append(answer(client, head + [random.randrange(1, options.vocabulary) for _ in range(8)], 2)[0])
    return {"prefix": options.prefix, "first_request": round(statistics.median(first), 5), "second_request": round(statistics.median(second), 5),
            "times": round(statistics.median(first) / statistics.median(second), 2)}


def generator_seconds(where):
    with socket.create_connection(where) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return [float(re.search(rf"^ppengine_generation_seconds_{what} (\S+)", text, re.M).group(1)) for what in ("sum", "count")]


def http_cost(where, options):
    """Requests of one client, whole and streamed: its time less the generator's, as a mean."""
    lines = []
    for stream in False, True:
        client, requests, seconds = Client(where, options.name), max(20, 4 * options.rounds), 0
        before = generator_seconds(where)
        for _ in range(requests):
            prompt = [random.randrange(1, options.vocabulary) for _ in range(options.prompt_tokens)]
            body = {"prompt": prompt, "max_tokens": options.new_tokens, "temperature": 0, "ignore_eos": True, "stream": stream}
            data, begin, got = request_bytes(body), time.perf_counter(), b""
            client.socket.sendall(data)
            while not got.endswith(b"\r\n0\r\n\r\n" if stream else b"}"):
                got += client.socket.recv(1 << 20)
            seconds += time.perf_counter() - begin
        after = generator_seconds(where)
        own = (after[0] - before[0]) / (after[1] - before[1])
        added = seconds / requests - own
        lines.append({"http": "streamed" if stream else "whole", "requests": requests, "request_seconds": round(seconds / requests, 6),
                      "generator_seconds": round(own, 6), "added_microseconds": round(1e6 * added, 1), "added_share": round(added / own, 5)})
    return lines


def repetitive(where, options):
    """Prompts that are one piece again and again: a model that has been trained, and most that have not, goes on with it."""
    client, seconds, tokens = Client(where, options.name), [], 8 * options.new_tokens
    for seed in range(options.rounds):
        piece = [random.Random(seed).randrange(1, options.vocabulary) for _ in range(16)]
        first, whole = answer(client, piece * (options.prompt_tokens // 16), tokens)
        seconds.append(whole - first)
    return {"repetitive": True, "decode_tokens_per_second": round((tokens - 1) / statistics.median(seconds), 1)}


class Transformers:
    def __init__(self, options):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch, self.options = torch, options
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()

    def measure(self, clients):
        torch, options = self.torch, self.options
        ids = torch.randint(1, options.vocabulary, (clients, options.prompt_tokens))
        seconds = []
        with torch.no_grad():
            for _ in range(2):
                begin = time.perf_counter()
                self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.new_tokens, min_new_tokens=options.new_tokens,
                                    do_sample=False, pad_token_id=0)
                seconds.append(time.perf_counter() - begin)
        return {"transformers": True, "clients": clients, "tokens_per_second": round(clients * options.new_tokens / min(seconds), 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--url", help="of a server that runs")
    parser.add_argument("--name", help="the model's name for the server")
    parser.add_argument("--binary", default="build/bin/ppengine")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--prefix", type=int, default=0)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--repetitive", action="store_true")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("more", nargs="*", help="further flags of the server, behind --")
    options = parser.parse_args()
    clients = [int(each) for each in options.clients.split(",") if each]

    def show(line):
        print(json.dumps(line), flush=True)

    peer = Transformers(options) if options.transformers else None
    for count in clients if peer else []:
        show(peer.measure(count))
    server, url = None, options.url
    if not url:
        server = subprocess.Popen([options.binary, "serve", "--model", options.model, "--port", "0", *options.more], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        url = re.search(r"http://\S+", server.stdout.readline()).group(0)
    parsed = urllib.parse.urlparse(url)
    where = (parsed.hostname, parsed.port)
    try:
        answer(Client(where, options.name), list(range(1, options.prompt_tokens + 1)), 2)  # warm
        for count in clients:
            show(measure(where, options, count))
        if options.prefix:
            show(shared_prefix(where, options))
        for line in http_cost(where, options) if options.http else []:
            show(line)
        if options.repetitive:
            show(repetitive(where, options))
    finally:
        if server:
            server.terminate()
            server.wait()
    for count in clients if peer else []:
        show(peer.measure(count))


if __name__ == "__main__":
    main()
