// Operands of products on tensor cores in shared memory, as tiles of so many rows (of a) or columns (of b), 32 deep.
//
// A tile is stored as it lies in memory: AlongDepth, where neighbours in memory are neighbours in depth, or else across it. It is moved in
// chunks of 16 bytes whose places are permuted, so that neither the copies nor load_matrices() meet in a bank: eight chunks that are
// written or read at the same time lie in the eight different parts of 128 bytes.
#pragma once

#include "tensor_core.hpp"
#include "tile.hpp"  // group_barrier_local

constexpr int tensor_depth = 32;
constexpr int chunk_elements = 8, chunk_bytes = 16;

template <int Rows, bool AlongDepth, int Threads>
struct TensorTile {
  static constexpr int bytes = Rows * tensor_depth * 2;
  static constexpr int chunks_of_line = (AlongDepth ? tensor_depth : Rows) / chunk_elements;
  static constexpr int lines_at_once = Threads / chunks_of_line;
  static constexpr int lines = AlongDepth ? Rows : tensor_depth;
  static constexpr int copies = lines / lines_at_once;  // of a work-item
  static_assert(copies * lines_at_once == lines);

  static int place(int line, int chunk) {
    const int turn = AlongDepth ? (line >> 1) & 3 : line & 7;
    return line * chunks_of_line * chunk_bytes + (chunk ^ turn) * chunk_bytes;
  }

  // Where the work-item's copies begin, and how far they lie apart. Rows beyond the last are taken from it: nobody uses what they give.
  // (Across: whole chunks of them, so that the number of rows is a multiple of 8.)
  struct Source {
    const bf16_bits* from[AlongDepth ? copies : 1];
    long line;       // elements between lines in memory
    int depth;       // of its first chunk within the tile
    unsigned place;  // of its first chunk in shared memory

    Source(const bf16_bits* operand, long first_row, long rows, long stride, unsigned memory, int thread) : line(stride) {
      const int chunk = thread % chunks_of_line, first = thread / chunks_of_line;
      place = memory + TensorTile::place(first, chunk);
      if constexpr (AlongDepth) {
        depth = chunk * chunk_elements;
#pragma unroll
        for (int i = 0; i < copies; ++i) {
          const long row = first_row + first + i * lines_at_once;
          from[i] = operand + lesser(row, rows - 1) * stride + depth;
        }
      } else {
        depth = first;
        from[0] = operand + first * stride + lesser(first_row + chunk * chunk_elements, rows - chunk_elements);
      }
    }
    // As the permutation repeats every eight lines, all copies of a work-item are turned alike.
    static_assert(lines_at_once % 8 == 0);
    static constexpr int apart = lines_at_once * chunks_of_line * chunk_bytes;

    // The tile that begins `ahead` elements deeper, into the buffer at so many bytes.
    void copy(int ahead, int buffer) const {
#pragma unroll
      for (int i = 0; i < copies; ++i) copy_chunk(place + buffer + i * apart, at(ahead, i));
    }
    // The same where the sum ends after `left` elements of it: zeros behind them.
    void copy(int ahead, int buffer, long left) const {
#pragma unroll
      for (int i = 0; i < copies; ++i) {
        const long mine = AlongDepth ? left - depth : left > depth + i * lines_at_once ? chunk_elements : 0;
        const int whole = static_cast<int>(lesser(greater(mine, 0), chunk_elements));
        copy_chunk(place + buffer + i * apart, whole > 0 ? at(ahead, i) : from[0], 2 * whole);
      }
    }
    void advance(int elements) {
#pragma unroll
      for (const bf16_bits*& one : from) one += AlongDepth ? elements : elements * line;
    }

   private:
    const bf16_bits* at(int ahead, int i) const { return AlongDepth ? from[i] + ahead : from[0] + (ahead + i * lines_at_once) * line; }
  };

  // What the lane reads of 16 rows from a multiple of 16 on, 16 deep; `of_b`: in the order that b has its registers in.
  struct Reader {
    unsigned address[tensor_depth / step_depth];

    Reader(unsigned memory, int first_row, int lane, bool of_b) {
      const int matrix = lane / 8, down = of_b ? matrix >> 1 : matrix & 1, deep = of_b ? matrix & 1 : matrix >> 1;
#pragma unroll
      for (int step = 0; step < tensor_depth / step_depth; ++step) {
        const int row = first_row + down * 8, depth = step * step_depth + deep * 8;
        address[step] = memory + (AlongDepth ? TensorTile::place(row + lane % 8, depth / chunk_elements)
                                             : TensorTile::place(depth + lane % 8, row / chunk_elements));
      }
    }
    // Rows 16·i further, in the buffer at so many bytes. Across, that is two chunks each: bits of the address that nothing else sets.
    void read(unsigned (&to)[4], int step, int i, int buffer) const {
      const unsigned there = AlongDepth ? address[step] + i * 16 * chunks_of_line * chunk_bytes : address[step] ^ (i * 2 * chunk_bytes);
      load_matrices<!AlongDepth>(to, there + buffer);
    }
  };
};
