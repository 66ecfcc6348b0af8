// Reads the functions of a module, statement by statement.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "module.hpp"
#include "statements.hpp"

namespace ppengine::ptx {

class Parser {
 public:
  explicit Parser(Module& module) : module_(module) {}
  void read(const Statement& statement);
  void finish();  // resolves calls between functions

 private:
  void header(const std::string& text, bool body);
  void directive(const std::string& text);
  void label(const std::string& name);
  void end_of_function();  // resolves jumps
  Function& function(const std::string& name);

  // instructions.cpp
  void instruction(std::string text, std::uint32_t line);
  void memory(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands);
  void shuffle(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands);
  void call(Instruction& made, const std::string& rest);
  void move(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands);

  void tensor(Instruction& made, const std::string& opcode, const std::vector<std::string>& operands);  // tensor_instructions.cpp

  // operands.cpp
  Operand operand(const std::string& text) const;
  std::int32_t find_register(const std::string& name) const;  // -1: there is none
  Operand address(const std::string& text, std::int64_t& offset, bool& parameters) const;
  std::vector<std::string> vector_of(const std::string& text) const;

  Module& module_;
  Function* current_ = nullptr;
  std::map<std::string, std::uint32_t> registers_, families_;  // "%r" of "%r<26>": its first
  std::map<std::string, Slot> slots_;                          // parameters and locals in the frame
  std::map<std::string, std::uint32_t> labels_;
  std::map<std::string, std::vector<std::string>> tables_;
  std::string pending_table_;
  std::vector<std::pair<std::size_t, std::string>> jumps_, table_jumps_;
  std::vector<std::pair<std::pair<Function*, std::size_t>, std::string>> calls_;
};

// ".param .align 8 .b8 name[12]" and the like.
struct Declaration {
  std::string name;
  std::uint32_t bytes = 0, alignment = 1;
};
Declaration declaration_of(const std::string& text);

// Bytes of "b32", "f32", "pred", ...; 0 where it is no type.
std::uint32_t bytes_of_type(std::string_view type);

}  // namespace ppengine::ptx
