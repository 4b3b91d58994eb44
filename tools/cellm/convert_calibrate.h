#ifndef CELLM_TOOLS_CELLM_CONVERT_CALIBRATE_H_
#define CELLM_TOOLS_CELLM_CONVERT_CALIBRATE_H_

// The calibration of convert and quantize: the source model reads a text through the same API as
// everything else, first to learn what its matrices are multiplied with, and at the end to measure
// what the written file lost.

#include <cstdint>
#include <string>
#include <vector>

#include "cellm/common.h"
#include "format/calibration.h"

namespace cellm::tools {

class Calibrator {
 public:
  // Opens the model at `model_path` and reads at most `most_tokens` of the text at `text_path`.
  //   OutOfRange  the text is shorter than a window
  static Result<Calibrator> Run(const std::string& model_path, const std::string& text_path,
                                uint64_t most_tokens, uint64_t max_bytes, bool quiet);

  // Borrows from the engine: valid until MeasureFile().
  const format::Calibration& inputs() const { return inputs_; }
  uint64_t tokens() const { return tokens_; }
  // The ledger of the file at `path`, as JSON (docs/format.md).
  Result<std::string> MeasureFile(const std::string& path, bool quiet);

 private:
  ModelHandle model_;
  EngineHandle engine_;
  format::Calibration inputs_;
  std::vector<int32_t> ids_;
  uint64_t tokens_ = 0;  // that were read
  uint64_t text_hash_ = 0;
};

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_CONVERT_CALIBRATE_H_
