// What the lanes of a warp do together on tensor cores.
#include "tensor_cores.hpp"

#include <fmt/core.h>

#include <array>

#include "bits.hpp"

namespace ppengine::ptx {
namespace {

constexpr std::size_t lanes = 32;

float bf16_value(std::uint64_t bits) { return from_bits<float>((bits & 0xffffu) << 16); }

// The eight rows of a matrix are read at once, which takes its time again for each that lies in the banks of another: an error here, since
// no kernel of ours needs it.
void check_banks(std::span<Thread> rows) {
  std::array<std::uint64_t, 8> in_banks{};
  for (const Thread& thread : rows) {
    const std::uint64_t address = thread.row_address();
    std::uint64_t& other = in_banks[address / 16 % 8];
    if (other != 0 && other != address)
      throw Fault(fmt::format("a bank conflict: rows of a matrix at bytes {} and {} of shared memory", other - shared_window,
                              address - shared_window));
    other = address;
  }
}

}  // namespace

// Lanes 8i..8i+7 point at the rows of matrix i; lane l gets of each the elements 2(l%4) and 2(l%4)+1 of row l/4, transposed: of column l/4.
void load_matrices(std::span<Thread> warp) {
  const bool transposed = warp.front().waiting().transposed;
  for (std::size_t matrix = 0; matrix < 4; ++matrix) check_banks(warp.subspan(8 * matrix, 8));
  std::array<std::array<std::uint16_t, 8>, lanes> rows;
  for (std::size_t i = 0; i < lanes; ++i) rows[i] = warp[i].read_row();
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::array<std::uint32_t, 4> results{};
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t half = 0; half < 2; ++half) {
        const std::size_t across = lane / 4, along = lane % 4 * 2 + half;
        const std::uint16_t element = transposed ? rows[8 * i + along][across] : rows[8 * i + across][along];
        results[i] |= static_cast<std::uint32_t>(element) << (16 * half);
      }
    warp[lane].finish_together(results);
  }
}

// d = a·b + c, 16 × 8 of 16 products each, as ops/kernels/tensor_core.hpp says who holds what. Devices round sums in their own way; here
// they are rounded once.
void multiply_matrices(std::span<Thread> warp) {
  std::array<std::array<double, 16>, 16> a;
  std::array<std::array<double, 8>, 16> b;
  const auto& operands = warp.front().waiting().matrices;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t group = lane / 4, pair = lane % 4 * 2;
    const auto element = [&](std::size_t operand, std::size_t half) {
      return static_cast<double>(bf16_value(warp[lane].value(operands[operand]) >> (16 * half)));
    };
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t i = 0; i < 4; ++i) a[group + i % 2 * 8][pair + half + i / 2 * 8] = element(4 + i, half);
      for (std::size_t i = 0; i < 2; ++i) b[pair + half + i * 8][group] = element(8 + i, half);
    }
  }
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::array<std::uint32_t, 4> results{};
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = from_bits<float>(warp[lane].value(operands[10 + i]));
      for (std::size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      results[i] = static_cast<std::uint32_t>(to_bits(static_cast<float>(sum)));
    }
    warp[lane].finish_together(results);
  }
}

}  // namespace ppengine::ptx
