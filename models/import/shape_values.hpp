// Values of a program that follow from its shapes alone, computed when it is lowered: masks and positions. What they are for any batch is
// known from a batch of two: whatever tells samples apart is marked, and not used.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ppengine::models {

class Arguments;
class Lowering;
struct ExportedNode;

class ShapeValues {
 public:
  struct Known {
    std::vector<std::int64_t> shape;  // of two samples
    std::vector<float> data;
    bool varies = false;  // from sample to sample, or it may for other batches
  };
  explicit ShapeValues(Lowering& lowering) : lowering_(lowering) {}
  // A value of the program's outer graph; null where it depends on anything else.
  const Known* find(const std::string& name);

 private:
  std::optional<Known> compute(const ExportedNode& node, const std::string& name);
  std::optional<Known> moved(const std::string& op, const Arguments& in, Known value);
  std::optional<Known> along(const std::string& op, const Arguments& in, Known value);
  std::optional<Known> joined(const std::string& op, const Arguments& in, const Known& first);
  std::optional<Known> indexed(const Arguments& in, const Known& table);
  const Known& value_of(const Arguments& in, const char* argument);

  Lowering& lowering_;
  void note_makers();
  std::map<std::string, const ExportedNode*> makers_;
  std::set<std::string> overwritten_;  // by an op that works in place
  std::map<std::string, std::optional<Known>> known_;
  int depth_ = 0;
};

// What a mask of attention, [.., queries, keys], lets through: everything, or keys up to the query's own (the last `window` of them; 0:
// all).
struct MaskKind {
  bool causal = false;
  std::int64_t window = 0;
};
// Nothing where it is of another kind. boolean: true lets through; otherwise it is added to scores.
std::optional<MaskKind> mask_kind(const ShapeValues::Known& mask, bool boolean);

}  // namespace ppengine::models
