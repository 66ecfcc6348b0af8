// Operands: registers, special registers, immediates, names in memory, addresses, vectors.
#include <cctype>
#include <stdexcept>

#include "parser.hpp"

namespace ppengine::ptx {
namespace {

const std::map<std::string, Special>& special_registers() {
  static const std::map<std::string, Special> all{
      {"%tid.x", Special::tid_x},     {"%tid.y", Special::tid_y},       {"%tid.z", Special::tid_z},       {"%ntid.x", Special::ntid_x},
      {"%ntid.y", Special::ntid_y},   {"%ntid.z", Special::ntid_z},     {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},
      {"%ctaid.z", Special::ctaid_z}, {"%nctaid.x", Special::nctaid_x}, {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
      {"%laneid", Special::laneid}};
  return all;
}

Operand immediate(std::uint64_t value) { return {Operand::Kind::immediate, 0, value}; }

// 0f3F800000 and 0d... are the bits of a float; others are decimal or hexadecimal.
Operand number(const std::string& text) {
  if (text.starts_with("0f") || text.starts_with("0d")) return immediate(std::stoull(text.substr(2), nullptr, 16));
  return immediate(text.front() == '-' ? static_cast<std::uint64_t>(std::stoll(text, nullptr, 0)) : std::stoull(text, nullptr, 0));
}

}  // namespace

std::int32_t Parser::find_register(const std::string& name) const {
  if (const auto found = registers_.find(name); found != registers_.end()) return static_cast<std::int32_t>(found->second);
  std::size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
  const auto family = families_.find(name.substr(0, digits));
  if (family == families_.end() || digits == name.size()) return -1;
  return static_cast<std::int32_t>(family->second + std::stoul(name.substr(digits)));
}

Operand Parser::operand(const std::string& text) const {
  if (text.empty()) throw std::runtime_error("an operand is missing");
  if (const auto special = special_registers().find(text); special != special_registers().end())
    return {Operand::Kind::special, static_cast<std::uint32_t>(special->second), 0};
  if (const std::int32_t found = find_register(text); found >= 0) return {Operand::Kind::reg, static_cast<std::uint32_t>(found), 0};
  if (std::isdigit(static_cast<unsigned char>(text.front())) || text.front() == '-') return number(text);
  if (const auto slot = slots_.find(text); slot != slots_.end()) return {Operand::Kind::frame, slot->second.offset, 0};
  if (const auto shared = module_.shared.find(text); shared != module_.shared.end())
    return immediate(shared_window + shared->second.offset);
  throw std::runtime_error("unknown operand " + text);
}

Operand Parser::address(const std::string& text, std::int64_t& offset, bool& parameters) const {
  if (!text.starts_with('[') || !text.ends_with(']')) throw std::runtime_error("not an address: " + text);
  std::string base = text.substr(1, text.size() - 2);
  offset = 0;
  if (const auto sign = base.find_first_of("+-", 1); sign != std::string::npos) {
    offset = std::stoll(base.substr(base[sign] == '+' ? sign + 1 : sign), nullptr, 0);
    base = trimmed(base.substr(0, sign));
  }
  const Operand found = operand(base);
  parameters = found.kind == Operand::Kind::frame;
  return found;
}

std::vector<std::string> Parser::vector_of(const std::string& text) const {
  if (!text.starts_with('{')) return {text};
  return split_list(text.substr(1, text.size() - 2));
}

}  // namespace ppengine::ptx
