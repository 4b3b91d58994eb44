#include "backend/input_statistics.h"

#include <algorithm>

namespace cellm {
namespace {

// Rows of a sum that one task computes.
constexpr int32_t kBlockRows = 64;

}  // namespace

InputStatistics::InputStatistics(const format::ModelFile& file, const kernels::KernelTable& kernels,
                                 platform::ThreadPool& pool, Allocator& allocator,
                                 uint64_t max_bytes)
    : kernels_(kernels), pool_(pool), allocator_(allocator), bytes_left_(max_bytes) {
  for (const format::Tensor& tensor : file.tensors) {
    if (tensor.data.empty()) continue;
    extents_.push_back({tensor.data.data(), tensor.data.data() + tensor.data.size(), &tensor});
  }
  std::sort(extents_.begin(), extents_.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
}

const InputStatistics::Source* InputStatistics::Find(const uint8_t* source) const {
  const auto found = sources_.find(source);
  return found == sources_.end() ? nullptr : &found->second;
}

Result<size_t> InputStatistics::NewSum(int32_t cols) {
  auto sum = std::make_unique<Sum>();
  sum->cols = cols;
  const uint64_t full = uint64_t{4} * static_cast<uint64_t>(cols) * static_cast<uint64_t>(cols);
  sum->diagonal = full > bytes_left_;
  const size_t size = static_cast<size_t>(sum->diagonal ? static_cast<uint64_t>(cols) : full / 4);
  if (!sum->diagonal) bytes_left_ -= full;
  CELLM_ASSIGN_OR_RETURN(sum->moments, Array<float>::Zeroed(allocator_, size, MemoryClass::kOther,
                                                            "input statistics"));
  sums_.push_back(std::move(sum));
  return sums_.size() - 1;
}

// Finds the tensor that holds `source`. Bytes of no tensor (there are none in a bound model) stay
// nameless and are left out.
void InputStatistics::Name(const uint8_t* source, size_t sum) {
  const auto after =
      std::upper_bound(extents_.begin(), extents_.end(), source,
                       [](const uint8_t* at, const Extent& extent) { return at < extent.begin; });
  if (after == extents_.begin() || source >= (after - 1)->end) return;
  const Extent& extent = *(after - 1);
  Source entry{extent.tensor->name, -1, sum};
  if (extent.tensor->shape.size() == 3 && extent.tensor->shape[0] > 0) {
    const uint64_t each =
        extent.tensor->data.size() / static_cast<uint64_t>(extent.tensor->shape[0]);
    entry.matrix = static_cast<int32_t>(static_cast<uint64_t>(source - extent.begin) /
                                        std::max<uint64_t>(each, 1));
  }
  sources_.emplace(source, entry);
}

void InputStatistics::Observe(Rows x, std::span<const uint8_t* const> sources) {
  if (!status_.ok() || x.rows == 0 || sources.empty()) return;
  const Source* const known = Find(sources[0]);
  size_t sum = 0;
  if (known != nullptr) {
    sum = known->sum;
  } else {
    auto fresh = NewSum(x.cols);
    if (!fresh.ok()) {
      status_ = fresh.status();
      return;
    }
    sum = *fresh;
  }
  for (const uint8_t* const source : sources) {
    if (Find(source) == nullptr) Name(source, sum);
  }
  status_ = Add(sums_[sum].get(), x);
}

// The sum of x x^T is the product of the transposed inputs with themselves.
Status InputStatistics::Add(Sum* sum, Rows x) {
  sum->rows += static_cast<uint64_t>(x.rows);
  const int32_t cols = sum->cols;
  if (sum->diagonal) {
    for (int32_t r = 0; r < x.rows; ++r) {
      for (int32_t c = 0; c < cols; ++c) {
        sum->moments[static_cast<size_t>(c)] += x.row(r)[c] * x.row(r)[c];
      }
    }
    return OkStatus();
  }
  const size_t block = static_cast<size_t>(kBlockRows) * static_cast<size_t>(cols);
  const size_t products = block * static_cast<size_t>(pool_.threads());
  const size_t inputs = static_cast<size_t>(x.rows) * static_cast<size_t>(cols);
  for (auto [array, size] : {std::pair{&transposed_, inputs}, std::pair{&products_, products}}) {
    if (array->size() >= size) continue;
    CELLM_ASSIGN_OR_RETURN(
        *array, Array<float>::Zeroed(allocator_, size, MemoryClass::kOther, "input statistics"));
  }
  float* const transposed = transposed_.data();
  for (int32_t r = 0; r < x.rows; ++r) {
    for (int32_t c = 0; c < cols; ++c) transposed[int64_t{c} * x.rows + r] = x.row(r)[c];
  }
  const int32_t blocks = (cols + kBlockRows - 1) / kBlockRows;
  pool_.For(blocks, [&](int32_t index, int32_t worker) {
    const int32_t begin = index * kBlockRows;
    const int32_t count = std::min(kBlockRows, cols - begin);
    float* const product = products_.data() + static_cast<size_t>(worker) * block;
    kernels_.matmul_f32_f32(transposed, x.rows, transposed + int64_t{begin} * x.rows, x.rows, cols,
                            x.rows, count, product, cols);
    float* const moments = sum->moments.data() + int64_t{begin} * cols;
    for (int64_t i = 0; i < int64_t{count} * cols; ++i) moments[i] += product[i];
  });
  return OkStatus();
}

std::vector<InputStatistics::Entry> InputStatistics::Entries() const {
  std::vector<Entry> entries;
  for (const auto& [source, known] : sources_) {
    const Sum& sum = *sums_[known.sum];
    entries.push_back(
        {known.tensor, known.matrix, sum.cols, sum.rows, {sum.moments.data(), sum.moments.size()}});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.matrix < b.matrix;
  });
  return entries;
}

}  // namespace cellm
