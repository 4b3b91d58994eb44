#include "cellm/quality.h"

#include <algorithm>
#include <cmath>

namespace cellm::tools {
namespace {

// log(sum exp(logits)), and the place of the largest logit.
struct Normalizer {
  double log_sum = 0;
  int32_t top = 0;

  Normalizer(const float* logits, int32_t count) {
    for (int32_t i = 1; i < count; ++i) {
      if (logits[i] > logits[top]) top = i;
    }
    const double largest = static_cast<double>(logits[top]);
    double sum = 0;
    for (int32_t i = 0; i < count; ++i) {
      sum += std::exp(static_cast<double>(logits[i]) - largest);
    }
    log_sum = largest + std::log(sum);
  }
};

// One window under evaluation. A reference pass fills `reference`; a model pass reads it.
struct Window {
  const int32_t* ids = nullptr;
  size_t count = 0;
  bool is_reference = false;
  bool compare = false;
  std::vector<float> reference;  // [count - 1, vocabulary]
  double surprise = 0;           // sums
  double reference_surprise = 0;
  double divergence = 0;
  uint64_t same_top = 0;
  bool finite = true;
};

double DivergenceOf(const float* p, const Normalizer& p_norm, const float* q,
                    const Normalizer& q_norm, int32_t count) {
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double log_p = static_cast<double>(p[i]) - p_norm.log_sum;
    const double log_q = static_cast<double>(q[i]) - q_norm.log_sum;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum;
}

int32_t OnLogits(size_t, size_t position, const float* logits, int32_t vocabulary, void* user) {
  Window& window = *static_cast<Window*>(user);
  if (position + 1 >= window.count) return 0;
  const Normalizer normalizer(logits, vocabulary);
  const double surprise =
      normalizer.log_sum - static_cast<double>(logits[window.ids[position + 1]]);
  window.finite = window.finite && std::isfinite(surprise);
  const size_t width = static_cast<size_t>(vocabulary);
  if (window.is_reference) {
    window.reference_surprise += surprise;
    window.reference.resize((window.count - 1) * width);
    std::copy_n(logits, width, window.reference.begin() + static_cast<int64_t>(position * width));
    return 0;
  }
  window.surprise += surprise;
  if (!window.compare) return 0;
  const float* const reference = window.reference.data() + position * width;
  const Normalizer other(reference, vocabulary);
  window.divergence += DivergenceOf(reference, other, logits, normalizer, vocabulary);
  if (other.top == normalizer.top) ++window.same_top;
  return 0;
}

Status Evaluate(cellm_engine* engine, Window* window) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_token_list list = CELLM_TOKEN_LIST_INIT;
  list.ids = window->ids;
  list.count = window->count;
  if (cellm_engine_evaluate(engine, &list, 1, OnLogits, window, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  return OkStatus();
}

Status SameVocabulary(cellm_engine* engine, cellm_engine* reference) {
  cellm_engine_info mine = CELLM_ENGINE_INFO_INIT;
  cellm_engine_info other = CELLM_ENGINE_INFO_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_engine_get_info(engine, &mine, &error) != CELLM_OK ||
      cellm_engine_get_info(reference, &other, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  if (mine.vocabulary == other.vocabulary) return OkStatus();
  return Unsupported("models of %d and %d tokens cannot be compared", mine.vocabulary,
                     other.vocabulary);
}

}  // namespace

Result<std::vector<int32_t>> TokenizeText(const cellm_model* model, const std::string& text,
                                          uint32_t flags) {
  cellm_error error = CELLM_ERROR_INIT;
  size_t count = 0;
  // A token covers a byte or more; only what takes the place of ill-formed UTF-8 is longer than
  // what it stands for.
  std::vector<int32_t> ids(text.size() + 16);
  const auto tokenize = [&] {
    return cellm_model_tokenize(model, text.data(), text.size(), flags, ids.data(), ids.size(),
                                &count, &error);
  };
  cellm_status status = tokenize();
  if (status == CELLM_OUT_OF_RANGE && count > ids.size()) {
    ids.resize(count);
    status = tokenize();
  }
  if (status != CELLM_OK) return ToStatus(error);
  ids.resize(count);
  return ids;
}

Result<TextQuality> MeasureText(cellm_engine* engine, cellm_engine* reference,
                                const std::vector<int32_t>& ids, size_t window, size_t windows,
                                const std::function<void(uint64_t done, uint64_t all)>& progress) {
  size_t count = ids.size() / window;
  if (windows > 0) count = std::min(count, windows);
  if (count == 0) {
    return OutOfRange("the text has %zu tokens, a window needs %zu", ids.size(), window);
  }
  if (reference != nullptr) CELLM_RETURN_IF_ERROR(SameVocabulary(engine, reference));
  Window work;
  work.count = window;
  work.compare = reference != nullptr;
  for (size_t w = 0; w < count; ++w) {
    work.ids = ids.data() + w * window;
    if (reference != nullptr) {
      work.is_reference = true;
      CELLM_RETURN_IF_ERROR(Evaluate(reference, &work));
      work.is_reference = false;
    }
    CELLM_RETURN_IF_ERROR(Evaluate(engine, &work));
    if (!work.finite) return Internal("window %zu: the logits are not finite", w);
    if (progress != nullptr) progress(w + 1, count);
  }
  TextQuality quality;
  quality.windows = count;
  quality.predicted = count * (window - 1);
  const double predicted = static_cast<double>(quality.predicted);
  quality.perplexity = std::exp(work.surprise / predicted);
  quality.compared = work.compare;
  if (work.compare) {
    quality.reference_perplexity = std::exp(work.reference_surprise / predicted);
    quality.divergence = work.divergence / predicted;
    quality.same_top = static_cast<double>(work.same_top) / predicted;
  }
  return quality;
}

}  // namespace cellm::tools
