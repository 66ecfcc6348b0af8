// The mesh: ranks arranged as pipeline x data x tensor, with a communicator for each axis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm {

// How many ranks lie along each axis. Ranks next to each other differ in the tensor axis first, which has the most traffic and the
// least patience, then in the data axis, then in the pipeline: launchers put neighbouring ranks on the same machine.
struct MeshShape {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;

  struct Place {
    int pipeline, data, tensor;
    bool operator==(const Place&) const = default;
  };

  int size() const { return pipeline * data * tensor; }
  Place place(int rank) const { return {rank / (data * tensor), rank / tensor % data, rank % tensor}; }
  int rank(Place place) const { return (place.pipeline * data + place.data) * tensor + place.tensor; }
  // "4,2,1": pipeline, data, tensor. ConfigError for anything else.
  static MeshShape parse(const std::string& text);
  // A table: one row per pipeline rank, one column per data rank, the tensor ranks inside. `names` (host and device by rank) may
  // be empty.
  std::string text(const std::vector<std::string>& names = {}) const;
};

// One rank's communicators. `world` must outlive it.
class Mesh {
 public:
  // Collective. ConfigError when the shape does not have as many ranks as there are.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  MeshShape::Place place() const { return place_; }
  Communicator& world() const { return world_; }
  // The ranks that differ from this one in that axis only; by their place along it.
  Communicator& pipeline() const { return *pipeline_; }
  Communicator& data() const { return *data_; }
  Communicator& tensor() const { return *tensor_; }
  // Ranks with the same place in the pipeline: data x tensor.
  Communicator& stage() const { return *stage_; }

 private:
  Communicator& world_;
  MeshShape shape_;
  MeshShape::Place place_;
  std::unique_ptr<Communicator> pipeline_, data_, tensor_, stage_;
};

}  // namespace ppengine::comm
