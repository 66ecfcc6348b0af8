// Expressions evaluated on the host at some points: which of the known activations an expression of one input is, however it is written.
#pragma once

#include <optional>

#include <ppengine/engine/tensor/expression.hpp>
#include <ppengine/ops/activation.hpp>

namespace ppengine::engine {

// The value of the last line; nothing where a text has something in it that is not known here.
std::optional<double> evaluate(const Expression& expression, const std::vector<double>& inputs);
// Nothing where it is none of them at every point that is looked at.
std::optional<ops::ActivationKind> known_activation(const Expression& expression);

}  // namespace ppengine::engine
