# Run as a script: turns kernel sources and headers into one C++ file with their texts.
#   cmake -DOUT=file.cpp -DFILES="a.cpp;b.hpp" -P EmbedKernels.cmake
set(_sources "")
set(_headers "")
foreach(_file ${FILES})
  file(READ ${_file} _text)
  get_filename_component(_extension ${_file} EXT)
  # A string literal may have 64 KiB at most on some compilers: pieces of 15,000 characters are joined by the compiler.
  string(LENGTH "${_text}" _length)
  set(_literal "")
  set(_at 0)
  while(_at LESS _length)
    string(SUBSTRING "${_text}" ${_at} 15000 _piece)
    string(APPEND _literal "R\"kernel(${_piece})kernel\"\n")
    math(EXPR _at "${_at} + 15000")
  endwhile()
  if(_extension STREQUAL ".hpp")
    get_filename_component(_name ${_file} NAME)
    string(APPEND _headers "    {\"${_name}\",\n${_literal}},\n")
  else()
    get_filename_component(_name ${_file} NAME_WE)
    string(APPEND _sources "    {\"${_name}\",\n${_literal}},\n")
  endif()
endforeach()
file(WRITE ${OUT} "// Made by cmake/EmbedKernels.cmake from ops/kernels/.
#include <algorithm>
#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/kernel_sources.hpp>
#include <vector>

namespace ppengine::ops {
namespace {

const std::vector<KernelSource>& sources() {
  static const std::vector<KernelSource> all{
${_sources}  };
  return all;
}

const std::vector<KernelSource>& headers() {
  static const std::vector<KernelSource> all{
${_headers}  };
  return all;
}

}  // namespace

std::span<const KernelSource> kernel_sources() { return sources(); }
std::span<const KernelSource> kernel_headers() { return headers(); }

const KernelSource& kernel_source(std::string_view name) {
  const auto found = std::ranges::find(sources(), name, &KernelSource::name);
  PPENGINE_ASSERT(found != sources().end());
  return *found;
}

}  // namespace ppengine::ops
")
