// Reads the functions of a module: headers, declarations, labels.
#include "parser.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace ppengine::ptx {

std::uint32_t bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, std::uint32_t> bytes{{"b8", 1},  {"u8", 1},  {"s8", 1},  {"pred", 1}, {"b16", 2},
                                                               {"u16", 2}, {"s16", 2}, {"b32", 4}, {"u32", 4},  {"s32", 4},
                                                               {"f32", 4}, {"b64", 8}, {"u64", 8}, {"s64", 8},  {"f64", 8}};
  const auto found = bytes.find(type);
  return found == bytes.end() ? 0 : found->second;
}

Declaration declaration_of(const std::string& text) {
  Declaration made;
  std::istringstream words(text);
  std::string word;
  std::uint32_t element = 0, alignment = 0;
  bool pointee = false;  // behind .ptr, an alignment is of what is pointed to
  while (words >> word) {
    if (word == ".align") {
      std::uint32_t value = 0;
      words >> value;
      if (!pointee) alignment = value;
    } else if (word == ".ptr") {
      pointee = true;
    } else if (word.front() == '.') {
      if (const auto bytes = bytes_of_type(word.substr(1))) element = bytes;
    } else {
      made.name = word;
    }
  }
  std::uint32_t count = 1;
  if (const auto bracket = made.name.find('['); bracket != std::string::npos) {
    count = static_cast<std::uint32_t>(std::stoul(made.name.substr(bracket + 1)));
    made.name.resize(bracket);
  }
  if (made.name.empty() || element == 0) throw std::runtime_error("not a declaration: " + text);
  made.bytes = element * count;
  made.alignment = std::max(alignment, element);
  return made;
}

namespace {

Slot reserve(std::uint32_t& end, const Declaration& declared) {
  end = (end + declared.alignment - 1) / declared.alignment * declared.alignment;
  const Slot slot{end, declared.bytes};
  end += declared.bytes;
  return slot;
}

}  // namespace

Function& Parser::function(const std::string& name) {
  auto& slot = module_.functions[name];
  if (!slot) slot = std::make_unique<Function>();
  slot->name = name;
  return *slot;
}

// ".visible .entry NAME(PARAMETERS)" or ".func (RESULT) NAME(PARAMETERS)", both lists optional.
void Parser::header(const std::string& text, bool body) {
  if (!body) return;
  end_of_function();
  std::string rest = text.substr(text.find(text.find(".entry") != std::string::npos ? ".entry" : ".func"));
  const bool entry = rest.starts_with(".entry");
  rest = trimmed(rest.substr(entry ? 6 : 5));
  std::string result;
  if (rest.starts_with('(')) {
    result = rest.substr(1, rest.find(')') - 1);
    rest = trimmed(rest.substr(rest.find(')') + 1));
  }
  const auto open = rest.find('(');
  current_ = &function(trimmed(rest.substr(0, open)));
  current_->entry = entry;
  registers_.clear(), families_.clear(), slots_.clear(), labels_.clear(), tables_.clear(), jumps_.clear(), table_jumps_.clear();
  if (!result.empty()) {
    const Declaration declared = declaration_of(result);
    const Slot slot = slots_[declared.name] = reserve(current_->frame_bytes, declared);
    current_->result = static_cast<std::int32_t>(slot.offset);
    current_->result_bytes = slot.bytes;
  }
  if (open == std::string::npos) return;
  for (const std::string& one : split_list(rest.substr(open + 1, rest.rfind(')') - open - 1))) {
    const Declaration declared = declaration_of(one);
    current_->parameters.push_back(slots_[declared.name] = reserve(current_->frame_bytes, declared));
  }
}

void Parser::directive(const std::string& text) {
  if (text.starts_with(".pragma") || text.starts_with(".maxntid") || text.starts_with(".reqntid")) return;
  // A text that is left over from what the compiler asked about the target; an instruction that named it would be an error.
  if (text.starts_with(".global") && text.find("_$_str") != std::string::npos) return;
  if (text.starts_with(".branchtargets")) {
    tables_[pending_table_] = split_list(text.substr(14));
    return;
  }
  if (text.starts_with(".reg")) {
    std::istringstream words(text);
    std::string reg, type, names;
    words >> reg >> type;
    std::getline(words, names);
    for (const std::string& name : split_list(names)) {
      const auto family = name.find('<');
      auto& first = family == std::string::npos ? registers_[name] : families_[name.substr(0, family)];
      first = current_->registers;
      current_->registers += family == std::string::npos ? 1 : static_cast<std::uint32_t>(std::stoul(name.substr(family + 1)));
    }
    return;
  }
  const Declaration declared = declaration_of(text);
  if (text.find(".shared") != std::string::npos) {
    module_.shared[declared.name] = reserve(module_.shared_bytes, declared);
  } else if (current_ && (text.starts_with(".param") || text.starts_with(".local"))) {
    // Parameters of calls have the same names in every call sequence: one slot is enough if it is large enough.
    const auto found = slots_.find(declared.name);
    if (found == slots_.end() || found->second.bytes < declared.bytes) slots_[declared.name] = reserve(current_->frame_bytes, declared);
  } else {
    throw std::runtime_error("unknown directive");
  }
}

void Parser::label(const std::string& name) {
  pending_table_ = name;
  if (current_) labels_[name] = static_cast<std::uint32_t>(current_->code.size());
}

void Parser::end_of_function() {
  if (!current_) return;
  const auto place = [&](const std::string& name) {
    const auto found = labels_.find(name);
    if (found == labels_.end()) throw std::runtime_error(current_->name + ": no label " + name);
    return found->second;
  };
  for (const auto& [at, name] : jumps_) current_->code[at].target = place(name);
  for (const auto& [at, name] : table_jumps_)
    for (const std::string& one : tables_.at(name)) current_->code[at].targets.push_back(place(one));
  current_ = nullptr;
}

void Parser::read(const Statement& statement) {
  try {
    if (statement.kind == Statement::Kind::header || statement.kind == Statement::Kind::declaration)
      header(statement.text, statement.kind == Statement::Kind::header);
    else if (statement.kind == Statement::Kind::label)
      label(statement.text);
    else if (statement.text.starts_with('.'))
      directive(statement.text);
    else
      instruction(statement.text, statement.line);
  } catch (const std::exception& e) {
    throw std::runtime_error("PTX line " + std::to_string(statement.line) + " '" + statement.text + "': " + e.what());
  }
}

void Parser::finish() {
  end_of_function();
  for (const auto& [where, name] : calls_) {
    const auto found = module_.functions.find(name);
    if (found == module_.functions.end()) throw std::runtime_error(where.first->name + " calls " + name + ", which the PTX does not have");
    where.first->code[where.second].callee = found->second.get();
  }
}

Module Module::parse(std::string_view text) {
  Module module;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) module.lines.push_back(trimmed(line));
  Parser parser(module);
  for (const Statement& statement : statements_of(text)) parser.read(statement);
  parser.finish();
  return module;
}

const Function& Module::kernel(std::string_view name) const {
  const auto found = functions.find("__sycl_kernel_" + std::string(name));
  if (found == functions.end() || !found->second->entry) throw std::runtime_error("the PTX has no kernel " + std::string(name));
  return *found->second;
}

}  // namespace ppengine::ptx
