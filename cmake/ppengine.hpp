// Everything a program that embeds ppengine needs, in one header. In reading order:
#pragma once

// What every part uses: errors by audience, the log, the version.
#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/base/version.hpp>

// A model is a graph: build one, take one from a folder or preset, or import a PyTorch program.
#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/models/source.hpp>

// How it is laid over ranks and devices: schedules and their plans, ranks as threads.
#include <ppengine/comm/threads.hpp>
#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/registry.hpp>

// Training and evaluation, step by step.
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/engine/trainer.hpp>

// Whole runs from start to end.
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/inspection.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/runs/serving.hpp>
#include <ppengine/runs/training.hpp>

// Ops of one's own: nodes of the graph, with SYCL kernels.
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/device/source_kernels.hpp>
