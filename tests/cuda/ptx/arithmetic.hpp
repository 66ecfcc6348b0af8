// What instructions that neither touch memory nor jump compute, by the name that PTX gives them: "add.rn.f32".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ppengine::ptx {

using Compute = std::uint64_t (*)(std::uint64_t a, std::uint64_t b, std::uint64_t c);
using Arithmetic = std::map<std::string, Compute, std::less<>>;

// Every opcode that is known. The names are all that occur in our kernels, and their relatives of other types.
const Arithmetic& arithmetic();

// Parts of it, a file each.
void add_integers(Arithmetic& table);
void add_floating(Arithmetic& table);
void add_comparisons(Arithmetic& table);
void add_conversions(Arithmetic& table);

}  // namespace ppengine::ptx
