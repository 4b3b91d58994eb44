#ifndef CELLM_TESTS_SUPPORT_ZOO_MM_H_
#define CELLM_TESTS_SUPPORT_ZOO_MM_H_

// The multimodal checkpoints of testdata/zoo-mm (its README.md says what is in them) and what the
// reference computed for them: what a tower is given, and what it should make of it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "json/json.h"
#include "media/tower_input.h"
#include "support/checkpoint.h"

namespace cellm::testing {

struct ZooMmCase {
  std::string name;
  media::TowerInput input;
  std::vector<float> after, before;  // before is empty where it is not stored
};

struct ZooMm {
  std::string family;
  std::string folder;
  std::map<std::string, CheckpointTensor> reference;
  std::unique_ptr<json::Document> description;  // reference.json

  // Reads the folder `name`. Null description when it is not there.
  explicit ZooMm(const std::string& name);

  // The floats of a tensor of the reference; empty when there is none.
  const std::vector<float>& Values(const std::string& key) const;
  // The case of that name in reference.json.
  json::Value CaseOf(const std::string& name) const;
  // A list of integers in a JSON value; empty when it is none.
  static std::vector<int32_t> Ints(json::Value list);

  // Cases whose pixels are stored, in the backend that the reference's features come from.
  std::vector<ZooMmCase> Pictures() const;
  // Clips of a case, one by one, with their part of the features.
  std::vector<ZooMmCase> Clips(const std::string& name) const;

 private:
  std::vector<media::TowerInput::Grid> Grids(const std::string& name,
                                             const std::vector<int64_t>& shape,
                                             int32_t patch) const;
};

// Rounds the matrices of towers and projectors in `file`, as it was opened, to 8 or 4 bits with one
// scale a row. Tables of positions and matrices that are stored the other way round stay.
void QuantiseTower(format::ModelFile* file, int bits);

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_ZOO_MM_H_
