// The table of all opcodes that only compute.
#include "arithmetic.hpp"

namespace ppengine::ptx {

const Arithmetic& arithmetic() {
  static const Arithmetic table = [] {
    Arithmetic all;
    add_integers(all);
    add_floating(all);
    add_comparisons(all);
    add_conversions(all);
    return all;
  }();
  return table;
}

}  // namespace ppengine::ptx
