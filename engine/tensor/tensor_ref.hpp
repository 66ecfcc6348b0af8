// TensorRef: a view on a value of the graph.
#pragma once

#include <ppengine/engine/tensor/dim.hpp>

namespace ppengine::engine {

// A view on a value of the graph, on a parameter that no node has read yet, or on an elementwise node that is not made yet (value below
// -1). Elements are 4 bytes: f (float), i (int), b (bool as int).
struct TensorRef {
  int value = -1, parameter = -1;
  Dims shape;
  char type = 'f';
  Dim offset = 0;
  Dims strides;      // of the view
  Dim elements = 1;  // of the value itself

  bool dense() const;
  char stored() const { return type == 'f' ? 'f' : 'i'; }
  int rank() const { return static_cast<int>(shape.size()); }
  bool exists() const { return value != -1 || parameter >= 0; }
};

}  // namespace ppengine::engine
