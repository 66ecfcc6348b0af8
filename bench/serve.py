"""Throughput and latency of `ppengine serve`: python bench/serve.py --model DIR [--clients 1,8,32] [--prompt-tokens 128] [--new-tokens 64]
Starts the server on a free port, or measures one that runs with --url (any OpenAI-compatible server). Prompts are random token numbers.
Prints a JSON line per number of clients. Standard library only."""
import argparse
import http.client
import json
import random
import re
import statistics
import subprocess
import threading
import time
import urllib.parse


def ask(host, port, model, prompt, new_tokens):
    connection = http.client.HTTPConnection(host, port, timeout=600)
    body = {"prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    if model:
        body["model"] = model
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response, first, tokens = connection.getresponse(), None, 0
    if response.status != 200:
        raise RuntimeError(response.read())
    for line in response:
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - begin
            tokens += 1
    return first, time.perf_counter() - begin, tokens


def measure(host, port, model, clients, rounds, length, new_tokens, vocabulary, shared):
    results, errors = [], []
    head = [random.randrange(1, vocabulary) for _ in range(shared)]

    def client():
        try:
            for _ in range(rounds):
                results.append(ask(host, port, model, head + [random.randrange(1, vocabulary) for _ in range(length - shared)], new_tokens))
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    done = len(results)
    return {"clients": clients, "requests": done, "errors": errors[:3], "tokens_per_second": round(done * new_tokens / seconds, 1),
            "first_token_seconds": round(statistics.median(r[0] for r in results), 4) if done else None,
            "request_seconds": round(statistics.median(r[1] for r in results), 4) if done else None}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--url", help="of a server that runs")
    parser.add_argument("--name", help="the model's name for the server")
    parser.add_argument("--binary", default="build/bin/ppengine")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--shared-tokens", type=int, default=0, help="of each prompt that are the same for all")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("more", nargs="*", help="further flags of the server, behind --")
    options = parser.parse_args()
    server, url = None, options.url
    if not url:
        server = subprocess.Popen([options.binary, "serve", "--model", options.model, "--port", "0", *options.more], stdout=subprocess.PIPE, text=True)
        url = re.search(r"http://\S+", server.stdout.readline()).group(0)
    where = urllib.parse.urlparse(url)
    try:
        ask(where.hostname, where.port, options.name, list(range(1, options.prompt_tokens + 1)), 2)  # warm
        for clients in map(int, options.clients.split(",")):
            print(json.dumps(measure(where.hostname, where.port, options.name, clients, options.rounds, options.prompt_tokens, options.new_tokens,
                                     options.vocabulary, options.shared_tokens)), flush=True)
    finally:
        if server:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
