// PagePool: pages of the KV cache that are free, taken or kept.
#include <ppengine/runs/generator/page_pool.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::runs {

PagePool::PagePool(std::int64_t pages, std::int64_t page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<std::size_t>(pages)), free_(pages - 1) {
  for (std::int64_t page = pages - 1; page > 0; --page) unused_.push_back(static_cast<std::int32_t>(page));
}

std::int32_t PagePool::take() {
  if (unused_.empty()) {
    // Only pages that no kept one follows: whoever uses a page uses those before it too, so they go last.
    std::int32_t oldest = -1;
    for (std::size_t i = 1; i < pages_.size(); ++i) {
      const Page& page = pages_[i];
      if (page.is_kept && page.holders == 0 && page.children == 0 && (oldest < 0 || page.used < at(oldest).used))
        oldest = static_cast<std::int32_t>(i);
    }
    if (oldest < 0) return -1;
    forget(oldest);
  }
  const std::int32_t page = unused_.back();
  unused_.pop_back();
  --free_;
  at(page).holders = 1;
  return page;
}

void PagePool::hold(std::int32_t page) {
  if (at(page).holders++ == 0) --idle_;
}

void PagePool::release(std::int32_t page) {
  Page& one = at(page);
  PPENGINE_ASSERT(one.holders > 0);
  if (--one.holders > 0) return;
  one.used = ++clock_;
  if (one.is_kept) {
    ++idle_;
  } else {
    unused_.push_back(page);
    ++free_;
  }
}

void PagePool::forget(std::int32_t page) {
  Page& one = at(page);
  if (one.key->first.first > 0) --at(one.key->first.first).children;
  index_.erase(one.key);
  one.is_kept = false;
  --idle_;
  ++free_;
  unused_.push_back(page);
}

void PagePool::keep(int adapter, std::span<const std::int32_t> tokens, std::span<std::int32_t> pages) {
  std::int32_t before = root(adapter);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto own = tokens.subspan(i * static_cast<std::size_t>(page_tokens_), static_cast<std::size_t>(page_tokens_));
    const auto [found, is_new] = index_.try_emplace({before, {own.begin(), own.end()}}, pages[i]);
    if (is_new) {
      PPENGINE_ASSERT(!at(pages[i]).is_kept && at(pages[i]).holders > 0);
      at(pages[i]).is_kept = true;
      at(pages[i]).key = found;
      if (before > 0) ++at(before).children;
    } else if (found->second != pages[i]) {
      hold(found->second);
      release(pages[i]);
      pages[i] = found->second;
    }
    before = pages[i];
  }
}

std::vector<std::int32_t> PagePool::find(int adapter, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> pages;
  std::int32_t before = root(adapter);
  for (std::size_t at = 0; at + static_cast<std::size_t>(page_tokens_) <= tokens.size(); at += static_cast<std::size_t>(page_tokens_)) {
    const auto own = tokens.subspan(at, static_cast<std::size_t>(page_tokens_));
    const auto found = index_.find({before, {own.begin(), own.end()}});
    if (found == index_.end()) break;
    before = found->second;
    pages.push_back(before);
  }
  return pages;
}

}  // namespace ppengine::runs
