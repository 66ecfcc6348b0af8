// The stages that are gathered at the moment, in the order in which PyTorch would free several of them at once: that of
// a Python set of integers. Only with this order do lowered plans equal PyTorch's files; any other would run as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ppengine::schedules {

// CPython's set for small non-negative integers (the hash is the number): open addressing with perturbation, slots of
// removed entries stay in use until the table is rebuilt.
class ActiveStages {
 public:
  bool contains(int stage) const {
    return std::any_of(slots_.begin(), slots_.end(), [&](int s) { return s == stage; });
  }
  void add(int stage) {
    insert(stage);
    ++used_;
    ++filled_;
    if (filled_ * 5 >= (slots_.size() - 1) * 3) rebuild();
  }
  void remove(int stage) {
    std::replace(slots_.begin(), slots_.end(), stage, removed);
    --used_;
  }
  std::vector<int> in_order() const {
    std::vector<int> stages;
    std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(stages), [](int s) { return s >= 0; });
    return stages;
  }

 private:
  static constexpr int empty = -1, removed = -2;
  static constexpr std::size_t linear_probes = 9, smallest = 8;

  void insert(int stage) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t perturb = static_cast<std::size_t>(stage);
    for (std::size_t i = perturb & mask;; perturb >>= 5, i = (i * 5 + 1 + perturb) & mask) {
      const std::size_t probes = i + linear_probes <= mask ? linear_probes : 0;
      for (std::size_t j = i; j <= i + probes; ++j) {
        if (slots_[j] != empty) continue;
        slots_[j] = stage;
        return;
      }
    }
  }
  void rebuild() {
    std::size_t size = smallest;
    while (size <= used_ * 4) size *= 2;
    const auto stages = in_order();
    slots_.assign(size, empty);
    for (const int stage : stages) insert(stage);
    filled_ = used_;
  }

  std::vector<int> slots_ = std::vector<int>(smallest, empty);
  std::size_t used_ = 0, filled_ = 0;
};

}  // namespace ppengine::schedules
