// Reducing gradients bucket by bucket.
#include <ppengine/engine/gradients/reducer.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/measure/recorder.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

double now() { return std::chrono::duration<double>(TimelineRecorder::Clock::now().time_since_epoch()).count(); }

}  // namespace

Reducer::Reducer(ModelRank& model, GradientNorm& norm, Options options)
    : model_(model),
      norm_(norm),
      options_(std::move(options)),
      rows_(model, options_.hook && options_.hook->elementwise()),
      stream_(model.device()) {
  if (options_.hook) options_.hook->check(model.sharding() != nullptr);
  std::size_t largest = 0;
  for (StageId index : model.stages()) {
    Tracked& stage = stages_[index];
    stage.store = &model.parameters(index);
    for (const Bucket& bucket : stage.store->buckets()) {
      if (!bucket.reduced()) continue;
      GradientBucket full;
      full.stage = index;
      full.index = stage.buckets.size();
      full.count = bucket.count();
      full.part_count = stage.store->local_count(bucket);
      for (ParameterId id : bucket.parameters) {
        const ParameterRange& range = *stage.store->find(id);
        const ParameterInfo& info = model.graph().parameters()[id];
        ops::Shape shape = info.shape;
        if (range.transposed) std::swap(shape[0], shape[1]);
        full.gradients.push_back({&info, shape, range.offset - bucket.begin});
      }
      largest = std::max(largest, full.part_count);
      stage.buckets.push_back(std::move(full));
    }
    if (!stage.buckets.empty()) stage.buckets.back().last = true;
  }
  if (model.keeps_gradient_parts()) part_ = ops::Buffer(model.device(), largest * sizeof(float), &model.memory());
  thread_ = std::thread([this] { run(); });
}

Reducer::~Reducer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Reducer::reset(Tracked& stage) {
  stage.next = 0;
  stage.final.assign(stage.store->ranges().size(), 0);
  stage.missing.clear();
  for (const GradientBucket& bucket : stage.buckets) stage.missing.push_back(bucket.gradients.size());
}

void Reducer::begin(bool add, bool last) {
  for (auto& [index, stage] : stages_) reset(stage);
  if (!add) timings_.clear();
  add_ = add;
  last_ = last;
  if (rows_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({StageId(), 0, {}});
  }
  changed_.notify_all();
}

void Reducer::final_gradients(StageId index, std::span<const ParameterId> parameters, ops::Stream& stream) {
  Tracked& stage = stages_.at(index);
  for (ParameterId id : parameters) {
    const ParameterRange& range = *stage.store->find(id);
    char& final = stage.final[static_cast<std::size_t>(&range - stage.store->ranges().data())];
    if (final) throw Error(fmt::format("{} gets its gradient twice in one backward", model_.graph().parameters()[id].name));
    final = 1;
    --stage.missing[range.bucket];
  }
  if (stage.next == stage.buckets.size() || stage.missing[stage.next] > 0) return;
  const ops::Event ready = stream.record();
  {
    const std::lock_guard lock(mutex_);
    for (; stage.next < stage.buckets.size() && stage.missing[stage.next] == 0; ++stage.next) {
      const Bucket& bucket = stage.store->buckets()[stage.next];
      GradientBucket& full = stage.buckets[stage.next];
      full.data = model_.whole_gradients(index) + bucket.begin;
      full.part = !model_.sharding() ? nullptr : add_ ? part_.as<float>() : stage.store->gradients() + stage.store->gradient_begin(bucket);
      jobs_.push_back({index, stage.next, ready});
    }
  }
  changed_.notify_all();
}

void Reducer::stage_done(StageId index) {
  const Tracked& stage = stages_.at(index);
  if (stage.next < stage.buckets.size())
    for (const ParameterRange& range : stage.store->ranges())
      if (range.bucket == stage.next && !stage.final[static_cast<std::size_t>(&range - stage.store->ranges().data())])
        throw Error(fmt::format("{} got no gradient in this step's backward", model_.graph().parameters()[range.id].name));
}

void Reducer::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition) {
  changed_.wait(lock, [&] { return error_ || condition(); });
  if (error_) std::rethrow_exception(error_);
}

void Reducer::finish() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return jobs_.empty(); });
}

void Reducer::wait_reduced(StageId stage) {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return std::ranges::none_of(jobs_, [&](const Job& job) { return job.stage == stage; }); });
}

void Reducer::cancel(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (jobs_.empty()) return;
  }
  // The thread waits for ranks that will not come: ends that, and tells them why.
  if (options_.data && !options_.data->failure()) options_.data->abort(reason);
}

void Reducer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    if (!error_ && !cancelled_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        process(job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
    }
    jobs_.pop_front();
    changed_.notify_all();
  }
}

std::size_t Reducer::reduce(const GradientBucket& bucket, std::size_t index) {
  packed_ = nullptr;
  if (!options_.data) return 0;
  HookContext context{*options_.data, stream_, model_.memory()};
  if (!rows_.few(bucket.stage, index)) {
    options_.hook->reduce(bucket, context);
    return bucket.count * sizeof(float);
  }
  packed_ = rows_.pack(bucket.stage, index, bucket.data, packed_count_, stream_);
  if (packed_count_ > 0) {
    GradientBucket touched = bucket;
    touched.data = packed_;
    touched.count = packed_count_;
    touched.part = nullptr;
    touched.part_count = 0;
    ops::Shape& shape = touched.gradients.front().shape;
    shape[0] = static_cast<std::int64_t>(packed_count_) / shape[1];
    options_.hook->reduce(touched, context);
  }
  if (bucket.part) stream_.zero(bucket.part, bucket.part_count * sizeof(float));
  const std::size_t begin = bucket.part ? bucket.part_count * static_cast<std::size_t>(options_.data->rank()) : 0;
  rows_.unpack(bucket.stage, index, bucket.part ? bucket.part : bucket.data, begin,
               begin + (bucket.part ? bucket.part_count : bucket.count), stream_);
  return packed_count_ * sizeof(float);
}

void Reducer::process(const Job& job) {
  if (!job.stage) return rows_.agree(*options_.data);
  while (!job.ready.wait_until(comm::Clock::now() + std::chrono::milliseconds(100))) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
  }
  Tracked& stage = stages_.at(job.stage);
  const GradientBucket& bucket = stage.buckets[job.bucket];
  const double start = now();
  const std::size_t sent = reduce(bucket, job.bucket);
  timings_.push_back({job.stage, bucket.index, bucket.count * sizeof(float), sent, start, now()});
  const Bucket& range = stage.store->buckets()[job.bucket];
  if (add_ && bucket.part) {
    float* const mine = stage.store->gradients() + stage.store->gradient_begin(range);
    ops::add(stream_, ops::Type::f32, mine, bucket.part, mine, static_cast<std::int64_t>(bucket.part_count));
    stream_.wait();
  }
  if (!last_ || model_.tied(range)) return;
  if (packed_ && !bucket.part)
    norm_.add(stream_, job.stage, job.bucket, packed_, packed_count_);
  else
    norm_.add(stream_, job.stage, job.bucket);
  if (options_.reduced) {
    options_.reduced(job.stage, job.bucket, stream_);
    stream_.wait();
  }
}

}  // namespace ppengine::engine
