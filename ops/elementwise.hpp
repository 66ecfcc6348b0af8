// Plain functions over flat memory: sums, scaling, casts, dropout, reductions. All asynchronous on the stream.
#pragma once

#include <cstdint>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/tensor.hpp>

namespace ppengine::ops {

// dst = a + b; dst may be a or b.
void add(Stream& stream, Type type, const void* a, const void* b, void* dst, std::int64_t count);
// dst[row,:] = src[row,:] + bias
void add_bias(Stream& stream, Type type, const void* src, const void* bias, void* dst, std::int64_t rows, std::int64_t width);
// dst = a · b elementwise, dst may be a or b.
void multiply(Stream& stream, Type type, const void* a, const void* b, void* dst, std::int64_t count);
// data *= factor
void scale(Stream& stream, Type type, void* data, float factor, std::int64_t count);
// dst = src · factor; dst may be src.
void scale(Stream& stream, Type type, const void* src, void* dst, float factor, std::int64_t count);
// dst = cap · tanh(src / cap), and its gradient.
void soft_cap(Stream& stream, Type type, const void* src, void* dst, float cap, std::int64_t count);
void soft_cap_backward(Stream& stream, Type type, const void* src, const void* diff_dst, void* diff_src, float cap, std::int64_t count);
void fill(Stream& stream, Type type, void* data, float value, std::int64_t count);
void cast(Stream& stream, Type from, const void* src, Type to, void* dst, std::int64_t count);
// Copies between views of the same shape with any strides.
void copy_strided(Stream& stream, const Tensor& src, const Tensor& dst);
// few[k,:] = table[rows[k],:] for k < count.
void gather_rows(Stream& stream, const float* table, const std::int32_t* rows, float* few, std::int64_t count, std::int64_t width);
// table[rows[k],:] = few[k,:], for the elements [begin, end) of the table alone; dst is the first of them.
void scatter_rows(Stream& stream, const float* few, const std::int32_t* rows, float* dst, std::int64_t count, std::int64_t width,
                  std::int64_t begin, std::int64_t end);
// dst[out,in] = src[in,out]ᵀ for f32 matrices: between weight layouts.
void transpose(Stream& stream, const float* src, float* dst, std::int64_t rows, std::int64_t columns);

// Dropout: dst = src · keep / (1-p), where keep depends only on (key, first + index): the same wherever and however often it runs.
// The backward is the same call on the gradient. add is added where it is not null (a residual). dst may be src.
void dropout(Stream& stream, Type type, const void* src, const void* add, void* dst, std::int64_t count, float p, std::uint64_t key,
             std::uint64_t first);

// sums[columns] (+)= column sums of src[rows,columns]; f32 result.
void sum_rows(Stream& stream, Type type, const void* src, float* sums, std::int64_t rows, std::int64_t columns, bool accumulate);
// *result = sum of src, accumulated in two floats (about 48 bits) on every device; deterministic. workspace: reduce_workspace() bytes.
std::size_t reduce_workspace();
void sum(Stream& stream, const float* src, float* result, std::int64_t count, void* workspace);
// *result = sum of squares, in f32 by four, then as above: as exact as f32 for more than a few values.
void sum_squares(Stream& stream, const float* src, float* result, std::int64_t count, void* workspace);

}  // namespace ppengine::ops
