#ifndef CELLM_TESTS_MEDIA_ZOO_MM_H_
#define CELLM_TESTS_MEDIA_ZOO_MM_H_

// testdata/zoo-mm for the media tests: processor files, reference cases and decoded pictures.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "json/json.h"
#include "media/processor.h"

namespace cellm::media {

inline constexpr const char* kZooFamilies[] = {"smolvlm", "lfm2_vl", "qwen3_5", "gemma3", "gemma4"};

// The texts of a folder's files; those it has not are empty.
struct ZooTexts {
  std::string config, preprocessor, processor;
  ProcessorFiles files() const { return {config, preprocessor, processor}; }
};
ZooTexts ReadZooTexts(const std::string& family);

// reference.json, parsed.
std::unique_ptr<json::Document> ReadZooReference(const std::string& family);

// What a case changes: size.longest_edge and do_image_splitting.
ProcessorOverrides OverridesOf(json::Value test_case);

std::vector<std::string> TextsOf(json::Value list);

// One of decoded.safetensors: what the reference's decoder makes of images/`name`.
Picture ReadDecoded(const std::string& name);

// Bytes of a file under testdata/zoo-mm.
std::vector<uint8_t> ReadZooBytes(const std::string& name);

// SHA-256 in hexadecimal (FIPS 180-4).
std::string Sha256(std::span<const uint8_t> bytes);

}  // namespace cellm::media

#endif  // CELLM_TESTS_MEDIA_ZOO_MM_H_
