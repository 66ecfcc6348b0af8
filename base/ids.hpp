// Ids: numbers of things of one kind (values, nodes, stages), which are not mixed up with those of another, and vectors indexed by them.
//
//   using StageId = Id<struct StageTag>;
//   IdVector<StageId, int> rank_of(stages, 0);
//   for (StageId stage : rank_of.ids()) rank_of[stage] = stage.number() % ranks;
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <utility>
#include <vector>

namespace ppengine {

// The number of a thing, from 0; a default one names nothing. Of the size of an int; made from one only where that is said.
template <class Tag>
class Id {
 public:
  using difference_type = std::int32_t;

  constexpr Id() = default;
  constexpr explicit Id(std::integral auto number) : number_(static_cast<std::int32_t>(number)) {}

  constexpr explicit operator bool() const { return number_ >= 0; }
  constexpr std::int32_t number() const { return number_; }  // for messages, tags and files; -1: none
  constexpr std::size_t index() const { return static_cast<std::size_t>(number_); }

  friend constexpr auto operator<=>(Id, Id) = default;
  constexpr Id& operator++() { return ++number_, *this; }
  constexpr Id& operator--() { return --number_, *this; }
  constexpr Id operator++(int) { return std::exchange(*this, *this + 1); }
  constexpr Id operator--(int) { return std::exchange(*this, *this - 1); }
  friend constexpr Id operator+(Id id, std::int32_t steps) { return Id(id.number_ + steps); }
  friend constexpr Id operator-(Id id, std::int32_t steps) { return Id(id.number_ - steps); }
  friend constexpr std::int32_t operator-(Id a, Id b) { return a.number_ - b.number_; }

 private:
  std::int32_t number_ = -1;
};

template <class Tag>
std::ostream& operator<<(std::ostream& out, Id<Tag> id) {
  return out << id.number();
}

// All ids from `begin` up to, and without, `end`. (std::views::iota would do, but clang 14 does not compile libstdc++'s.)
template <class Index>
class IdRange {
 public:
  class iterator {
   public:
    using value_type = Index;
    using reference = Index;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::bidirectional_iterator_tag;

    constexpr iterator() = default;
    constexpr explicit iterator(Index at) : at_(at) {}
    constexpr Index operator*() const { return at_; }
    constexpr iterator& operator++() { return ++at_, *this; }
    constexpr iterator& operator--() { return --at_, *this; }
    constexpr iterator operator++(int) { return iterator(at_++); }
    constexpr iterator operator--(int) { return iterator(at_--); }
    friend constexpr bool operator==(iterator, iterator) = default;

   private:
    Index at_{};
  };

  constexpr IdRange(Index begin, Index end) : begin_(begin), end_(end) {}
  constexpr iterator begin() const { return iterator(begin_); }
  constexpr iterator end() const { return iterator(end_); }

 private:
  Index begin_, end_;
};

template <class Index>
constexpr IdRange<Index> ids_between(Index begin, Index end) {
  return {begin, end};
}

// A vector with one element for every thing of a kind. Index: an Id, or int where things are counted rather than named (ranks).
template <class Index, class T>
class IdVector {
 public:
  using value_type = T;

  IdVector() = default;
  explicit IdVector(std::size_t count, const T& value = T()) : items_(count, value) {}
  explicit IdVector(std::vector<T> items) : items_(std::move(items)) {}
  IdVector(std::initializer_list<T> items) : items_(items) {}

  decltype(auto) operator[](Index at) { return items_[position(at)]; }
  decltype(auto) operator[](Index at) const { return items_[position(at)]; }
  decltype(auto) at(Index index) { return items_.at(position(index)); }
  decltype(auto) at(Index index) const { return items_.at(position(index)); }

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool contains(Index at) const { return at >= Index(0) && at < end_id(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  decltype(auto) front() { return items_.front(); }
  decltype(auto) front() const { return items_.front(); }
  decltype(auto) back() { return items_.back(); }
  decltype(auto) back() const { return items_.back(); }

  // Gives the id of what was added.
  Index push_back(T item) {
    items_.push_back(std::move(item));
    return end_id() - 1;
  }
  void resize(std::size_t count) { items_.resize(count); }
  void assign(std::size_t count, const T& value) { items_.assign(count, value); }
  void reserve(std::size_t count) { items_.reserve(count); }
  void clear() { items_.clear(); }

  Index end_id() const { return Index(static_cast<std::int32_t>(items_.size())); }  // one behind the last
  auto ids() const { return ids_between(Index(0), end_id()); }
  Index id_of(typename std::vector<T>::const_iterator at) const { return Index(static_cast<std::int32_t>(at - items_.begin())); }
  const std::vector<T>& items() const { return items_; }

  friend bool operator==(const IdVector&, const IdVector&) = default;

 private:
  static std::size_t position(Index at) {
    if constexpr (std::integral<Index>)
      return static_cast<std::size_t>(at);
    else
      return at.index();
  }

  std::vector<T> items_;
};

}  // namespace ppengine

template <class Tag>
struct std::hash<ppengine::Id<Tag>> {
  std::size_t operator()(ppengine::Id<Tag> id) const noexcept { return std::hash<std::int32_t>()(id.number()); }
};
