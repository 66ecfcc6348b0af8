// One instruction of PTX, from its text.
#include <algorithm>
#include <stdexcept>

#include "parser.hpp"

namespace ppengine::ptx {
namespace {

std::uint64_t same(std::uint64_t a, std::uint64_t, std::uint64_t) { return a; }

bool has_part(const std::string& opcode, const std::string& part) {
  return ("." + opcode + ".").find("." + part + ".") != std::string::npos;
}

std::string last_part(const std::string& opcode) { return opcode.substr(opcode.rfind('.') + 1); }

}  // namespace

void Parser::memory(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands) {
  const bool load = opcode.starts_with("ld.");
  made.action = load ? Action::load : Action::store;
  made.shared = has_part(opcode, "shared");
  const std::string type = last_part(opcode);
  made.bytes = static_cast<std::uint8_t>(bytes_of_type(type));
  made.is_signed = type.front() == 's';
  if (made.bytes == 0 || operands.size() != 2) throw std::runtime_error("unknown form of a load or store");
  const auto values = vector_of(operands[load ? 0 : 1]);
  if (values.size() > 4) throw std::runtime_error("a vector of more than four");
  made.count = static_cast<std::uint8_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) (load ? made.to : made.from)[i] = operand(values[i]);
  (load ? made.from : made.to)[0] = address(operands[load ? 1 : 0], made.offset, made.parameters);
}

void Parser::shuffle(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands) {
  static const std::map<std::string, Shuffle> kinds{{"shfl.sync.up.b32", Shuffle::up},
                                                    {"shfl.sync.down.b32", Shuffle::down},
                                                    {"shfl.sync.idx.b32", Shuffle::idx},
                                                    {"shfl.sync.bfly.b32", Shuffle::bfly}};
  made.action = Action::shuffle;
  made.shuffle = kinds.at(opcode);
  if (operands.size() != 5) throw std::runtime_error("a shuffle with a predicate is not known");
  made.to[0] = operand(operands[0]);
  for (int i = 0; i < 4; ++i) made.from[i] = operand(operands[static_cast<std::size_t>(i) + 1]);
  if (made.from[3].value != ~std::uint64_t(0)) throw std::runtime_error("only shuffles of whole warps are known");
}

// "(RESULT), NAME, (ARGUMENTS)", result and arguments optional.
void Parser::call(Instruction& made, const std::string& rest) {
  made.action = Action::call;
  auto parts = split_list(rest);
  const auto inside = [](const std::string& text) { return split_list(text.substr(1, text.size() - 2)); };
  if (!parts.empty() && parts.front().starts_with('(')) {
    made.result = static_cast<std::int32_t>(slots_.at(inside(parts.front()).at(0)).offset);
    parts.erase(parts.begin());
  }
  if (parts.empty()) throw std::runtime_error("a call of nothing");
  calls_.push_back({{current_, current_->code.size()}, parts[0]});
  if (parts.size() > 1)
    for (const std::string& argument : inside(parts[1])) made.arguments.push_back(slots_.at(argument).offset);
}

// mov and cvta; of a vector of registers only the upper half is ever asked for: mov.b64 {tmp, %r1}, %rd1.
void Parser::move(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands) {
  if (operands.size() != 2) throw std::runtime_error("unknown form of a move");
  const auto values = vector_of(operands[0]);
  made.from[0] = operand(operands[1]);
  if (values.size() > 1) {
    made.action = Action::unpack;
    made.count = static_cast<std::uint8_t>(values.size());
    made.bytes = static_cast<std::uint8_t>(bytes_of_type(last_part(opcode)) / values.size());
    for (std::size_t i = 0; i < values.size(); ++i) made.to[i] = operand(values[i]);
    return;
  }
  made.compute = same;
  made.to[0] = operand(values[0]);
}

void Parser::instruction(std::string text, std::uint32_t line) {
  if (!current_) throw std::runtime_error("an instruction outside of a function");
  Instruction made;
  made.line = line;
  if (text.starts_with('@')) {
    const auto space = text.find_first_of(" \t");
    made.guard_negated = text[1] == '!';
    made.guard = find_register(text.substr(made.guard_negated ? 2 : 1, space - (made.guard_negated ? 2 : 1)));
    if (made.guard < 0) throw std::runtime_error("unknown guard");
    text = trimmed(text.substr(space));
  }
  const auto end = text.find_first_of(" \t\n");
  const std::string opcode = text.substr(0, end), rest = end == std::string::npos ? "" : trimmed(text.substr(end));
  const auto operands = split_list(rest);
  if (opcode == "ret" || opcode == "exit") {
    made.action = Action::leave;
  } else if (opcode == "bra" || opcode == "bra.uni") {
    made.action = Action::jump;
    jumps_.emplace_back(current_->code.size(), rest);
  } else if (opcode == "brx.idx") {
    made.action = Action::jump_table;
    made.from[0] = operand(operands.at(0));
    table_jumps_.emplace_back(current_->code.size(), operands.at(1));
  } else if (opcode == "call" || opcode == "call.uni") {
    call(made, rest);
  } else if (opcode == "bar.sync" && rest == "0") {
    made.action = Action::barrier;
  } else if (opcode == "bar.warp.sync" && rest == "-1") {
    made.action = Action::warp_barrier;
  } else if (opcode.starts_with("shfl.")) {
    shuffle(made, opcode, operands);
  } else if (opcode.starts_with("cp.async.") || opcode.starts_with("ldmatrix.") || opcode.starts_with("mma.")) {
    tensor(made, opcode, operands);
  } else if ((opcode.starts_with("ld.") || opcode.starts_with("st.")) && !has_part(opcode, "volatile")) {
    memory(made, opcode, operands);
  } else if (opcode.starts_with("mov.") || opcode.starts_with("cvta.")) {
    move(made, opcode, operands);
  } else {
    const auto found = arithmetic().find(opcode);
    if (found == arithmetic().end()) throw std::runtime_error("unknown instruction " + opcode);
    made.compute = found->second;
    if (operands.size() < 2 || operands.size() > 4) throw std::runtime_error("unknown number of operands");
    made.to[0] = operand(operands[0]);
    for (std::size_t i = 1; i < operands.size(); ++i) made.from[i - 1] = operand(operands[i]);
  }
  current_->code.push_back(std::move(made));
}

}  // namespace ppengine::ptx
