// Instructions of tensor cores, from their text.
#include <stdexcept>

#include "parser.hpp"

namespace ppengine::ptx {

void Parser::tensor(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands) {
  const auto needs = [&](std::size_t least, std::size_t most) {
    if (operands.size() < least || operands.size() > most) throw std::runtime_error("unknown number of operands");
  };
  const auto vector = [&](const std::string& text, std::size_t size) {
    const auto names = vector_of(text);
    if (names.size() != size) throw std::runtime_error("a vector of another size");
    std::vector<Operand> all;
    for (const std::string& name : names) all.push_back(operand(name));
    return all;
  };
  if (opcode == "cp.async.cg.shared.global") {
    needs(3, 4);
    made.action = Action::copy;
    std::int64_t to_offset = 0;
    made.to[0] = address(operands[0], to_offset, made.parameters);
    if (to_offset != 0) throw std::runtime_error("an offset of the destination is not known");
    made.from[0] = address(operands[1], made.offset, made.parameters);
    if (operands[2] != "16") throw std::runtime_error("only copies of 16 bytes are known");
    made.bytes = 16;
    made.from[1] = operand(operands.back());
  } else if (opcode == "cp.async.commit_group") {
    made.action = Action::commit_copies;
  } else if (opcode == "cp.async.wait_group") {
    needs(1, 1);
    made.action = Action::finish_copies;
    made.target = static_cast<std::uint32_t>(operand(operands[0]).value);
  } else if (opcode == "ldmatrix.sync.aligned.m8n8.x4.shared.b16" || opcode == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") {
    needs(2, 2);
    made.action = Action::load_matrices;
    made.transposed = opcode.find(".trans.") != std::string::npos;
    const auto to = vector(operands[0], 4);
    for (std::size_t i = 0; i < 4; ++i) made.to[i] = to[i];
    made.from[0] = address(operands[1], made.offset, made.parameters);
  } else if (opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
    needs(4, 4);
    made.action = Action::multiply;
    for (const auto& [text, size] : {std::pair{operands[0], 4u}, {operands[1], 4u}, {operands[2], 2u}, {operands[3], 4u}})
      for (const Operand& one : vector(text, size)) made.matrices.push_back(one);
  } else {
    throw std::runtime_error("unknown instruction " + opcode);
  }
}

}  // namespace ppengine::ptx
