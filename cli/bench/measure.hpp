// How the bench subcommands time one thing.
#pragma once

#include <functional>

namespace ppengine::cli {

struct Measured {
  double seconds;  // median of the samples
  double least;
  double spread;  // from the tenth to the ninetieth percentile, as a share of the median
};

// run() submits work, wait() waits for all of it. Short work is repeated within a sample.
Measured measure(const std::function<void()>& run, const std::function<void()>& wait, int samples = 9);

}  // namespace ppengine::cli
