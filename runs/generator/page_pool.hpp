// PagePool: which pages of the KV cache are free, which belong to sequences, and which hold the beginnings of prompts that later ones may
// begin with too. Bookkeeping of the first rank; the pages themselves lie in each rank's Decoder.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace ppengine::runs {

class PagePool {
 public:
  // Page 0 belongs to nobody (engine/decoder.hpp).
  PagePool(std::int64_t pages, std::int64_t page_tokens);

  // A page for one sequence: a free one, or the one of a kept beginning that nobody has used for longest. -1: there is none.
  std::int32_t take();
  // One more sequence has the page; one sequence less.
  void hold(std::int32_t page);
  void release(std::int32_t page);

  // The tokens of these pages, from a prompt's beginning on, are in the cache: others may share them from now on, and they stay when nobody
  // has them, until they are needed. adapter: what they were computed with. Where another sequence has computed the same before, its pages
  // take the place of these, which are released: whoever has a kept page has those that it follows.
  void keep(int adapter, std::span<const std::int32_t> tokens, std::span<std::int32_t> pages);
  // The kept pages that a prompt begins with.
  std::vector<std::int32_t> find(int adapter, std::span<const std::int32_t> tokens);

  std::int64_t available() const { return free_ + idle_; }  // that take() can give
  std::int64_t kept() const { return static_cast<std::int64_t>(index_.size()); }
  std::int64_t used() const { return static_cast<std::int64_t>(pages_.size()) - 1 - available(); }  // by sequences
  std::int64_t size() const { return static_cast<std::int64_t>(pages_.size()) - 1; }
  std::int64_t page_tokens() const { return page_tokens_; }

 private:
  // What a kept page follows (a page, or below 0 the beginning with an adapter), and its tokens.
  using Key = std::pair<std::int32_t, std::vector<std::int32_t>>;
  using Index = std::map<Key, std::int32_t>;
  struct Page {
    std::int32_t holders = 0;   // sequences
    std::int32_t children = 0;  // kept pages that follow it
    std::uint64_t used = 0;     // when somebody last had it
    bool is_kept = false;
    Index::iterator key{};
  };
  static std::int32_t root(int adapter) { return -1 - (adapter + 1); }
  Page& at(std::int32_t page) { return pages_[static_cast<std::size_t>(page)]; }
  void forget(std::int32_t page);

  std::int64_t page_tokens_;
  std::vector<Page> pages_;
  std::vector<std::int32_t> unused_;  // a stack of free pages
  std::int64_t free_ = 0, idle_ = 0;  // idle: kept, and nobody has it
  std::uint64_t clock_ = 0;
  Index index_;
};

}  // namespace ppengine::runs
