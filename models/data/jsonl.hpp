// FILE.jsonl: a line per example (documents.hpp). A sequence is one example, cut off at its length and padded; or, packed, several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ppengine/models/data/data.hpp>

namespace ppengine::models {

std::unique_ptr<TokenSource> open_jsonl(const std::string& path, const DataOptions& options);

// Which examples share a sequence. lengths: of the examples, none above `length`. Of each stretch of 16384 examples the longest find their
// place first, each where it leaves the least room; every example is in one of the lists, which are in the order of their first example.
std::vector<std::vector<std::uint64_t>> pack_examples(const std::vector<std::int64_t>& lengths, std::int64_t length);

}  // namespace ppengine::models
