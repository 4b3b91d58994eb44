#include "media/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cellm::media {
namespace {

constexpr double kPi = 3.14159265358979323846;

double Sinc(double x) { return x == 0.0 ? 1.0 : std::sin(kPi * x) / (kPi * x); }

double Weight(Filter filter, double x) {
  if (filter == Filter::kLanczos) return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0;
  x = std::fabs(x);
  if (filter == Filter::kBilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

double Support(Filter filter) {
  switch (filter) {
    case Filter::kBilinear:
      return 1.0;
    case Filter::kBicubic:
      return 2.0;
    case Filter::kLanczos:
      return 3.0;
  }
  return 0.0;
}

// One pass: which inputs each output weighs, and by how much.
struct Taps {
  int32_t stride = 0;      // weights kept an output
  int32_t bits = 0;        // fractional bits of a weight
  Array<int32_t> first;    // [outputs]
  Array<int32_t> count;    // [outputs]
  Array<int32_t> weights;  // [outputs, stride]
};

// torchvision's number of bits for a pass whose largest weight is `largest`.
int32_t TorchvisionBits(double largest) {
  int32_t bits = 0;
  while (bits < 22 && static_cast<int64_t>(0.5 + std::ldexp(largest, bits + 1)) < 32768) {
    ++bits;
  }
  return bits;
}

Result<Taps> MakeTaps(int32_t in, int32_t out, Filter filter, Backend backend,
                      Allocator& allocator) {
  const double scale = static_cast<double>(in) / out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = Support(filter) * filter_scale;
  Taps taps;
  taps.stride = std::min(in, 2 * static_cast<int32_t>(std::ceil(support)) + 1);
  const size_t outputs = static_cast<size_t>(out);
  const size_t stride = static_cast<size_t>(taps.stride);
  const auto kind = MemoryClass::kActivations;
  CELLM_ASSIGN_OR_RETURN(taps.first, Array<int32_t>::Zeroed(allocator, outputs, kind, "resizing"));
  CELLM_ASSIGN_OR_RETURN(taps.count, Array<int32_t>::Zeroed(allocator, outputs, kind, "resizing"));
  CELLM_ASSIGN_OR_RETURN(taps.weights,
                         Array<int32_t>::Zeroed(allocator, outputs * stride, kind, "resizing"));
  CELLM_ASSIGN_OR_RETURN(Array<double> exact,
                         Array<double>::Zeroed(allocator, outputs * stride, kind, "resizing"));
  double largest = 0.0;
  for (size_t i = 0; i < outputs; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int32_t low = std::max(static_cast<int32_t>(centre - support + 0.5), 0);
    const int32_t high = std::min(static_cast<int32_t>(centre + support + 0.5), in);
    double* weights = exact.data() + i * stride;
    double sum = 0.0;
    for (int32_t j = low; j < high; ++j) {
      weights[j - low] = Weight(filter, (j - centre + 0.5) / filter_scale);
      sum += weights[j - low];
    }
    for (int32_t j = low; j < high && sum != 0.0; ++j) weights[j - low] /= sum;
    for (int32_t j = low; j < high; ++j) largest = std::max(largest, weights[j - low]);
    taps.first[i] = low;
    taps.count[i] = high - low;
  }
  taps.bits = backend == Backend::kPil ? 22 : TorchvisionBits(largest);
  const double one = static_cast<double>(int64_t{1} << taps.bits);
  for (size_t k = 0; k < exact.size(); ++k) {
    taps.weights[k] = static_cast<int32_t>((exact[k] < 0.0 ? -0.5 : 0.5) + exact[k] * one);
  }
  return taps;
}

// Sums stay inside int32: weights add up to 2^22 at most, negative lobes add less than half of that
// to the sum of magnitudes, and pixels end at 255.
uint8_t Round(int32_t sum, int32_t bits) {
  return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255));
}

void ResizeColumns(const PictureView& in, const Taps& taps, Picture* out) {
  const int32_t half = taps.bits > 0 ? 1 << (taps.bits - 1) : 0;
  const size_t in_row = static_cast<size_t>(in.width) * 3;
  const size_t out_row = static_cast<size_t>(out->width) * 3;
  for (int32_t y = 0; y < in.height; ++y) {
    const uint8_t* source = in.rgb + static_cast<size_t>(y) * in_row;
    uint8_t* target = out->rgb.data() + static_cast<size_t>(y) * out_row;
    for (size_t x = 0; x < static_cast<size_t>(out->width); ++x) {
      const uint8_t* pixel = source + static_cast<size_t>(taps.first[x]) * 3;
      const int32_t* weights = taps.weights.data() + x * static_cast<size_t>(taps.stride);
      int32_t red = half, green = half, blue = half;
      for (int32_t j = 0; j < taps.count[x]; ++j, pixel += 3) {
        red += weights[j] * pixel[0];
        green += weights[j] * pixel[1];
        blue += weights[j] * pixel[2];
      }
      target[3 * x] = Round(red, taps.bits);
      target[3 * x + 1] = Round(green, taps.bits);
      target[3 * x + 2] = Round(blue, taps.bits);
    }
  }
}

// `sums` holds one row of values: whole rows are added, which runs in vectors.
void ResizeRows(const PictureView& in, const Taps& taps, Array<int32_t>* sums, Picture* out) {
  const int32_t half = taps.bits > 0 ? 1 << (taps.bits - 1) : 0;
  const size_t row = static_cast<size_t>(in.width) * 3;
  int32_t* sum = sums->data();
  for (size_t y = 0; y < static_cast<size_t>(out->height); ++y) {
    std::fill_n(sum, row, half);
    const int32_t* weights = taps.weights.data() + y * static_cast<size_t>(taps.stride);
    for (int32_t j = 0; j < taps.count[y]; ++j) {
      const uint8_t* source = in.rgb + static_cast<size_t>(taps.first[y] + j) * row;
      const int32_t weight = weights[j];
      for (size_t x = 0; x < row; ++x) sum[x] += weight * source[x];
    }
    uint8_t* target = out->rgb.data() + y * row;
    for (size_t x = 0; x < row; ++x) target[x] = Round(sum[x], taps.bits);
  }
}

Result<Picture> Copy(const PictureView& picture, Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(Picture copy,
                         NewPicture(picture.width, picture.height, allocator, "picture"));
  std::memcpy(copy.rgb.data(), picture.rgb, copy.rgb.size());
  return copy;
}

}  // namespace

Result<Picture> Resize(const PictureView& picture, int32_t width, int32_t height, Filter filter,
                       Backend backend, Allocator& allocator) {
  if (picture.width == width && picture.height == height) return Copy(picture, allocator);
  Picture wide;
  PictureView between = picture;
  if (picture.width != width) {
    CELLM_ASSIGN_OR_RETURN(const Taps taps,
                           MakeTaps(picture.width, width, filter, backend, allocator));
    CELLM_ASSIGN_OR_RETURN(wide, NewPicture(width, picture.height, allocator, "resizing columns"));
    ResizeColumns(picture, taps, &wide);
    between = wide.view();
  }
  if (between.height == height) return wide;
  CELLM_ASSIGN_OR_RETURN(const Taps taps,
                         MakeTaps(between.height, height, filter, backend, allocator));
  CELLM_ASSIGN_OR_RETURN(Array<int32_t> sums,
                         Array<int32_t>::Uninitialised(allocator, static_cast<size_t>(width) * 3,
                                                       MemoryClass::kActivations, "resizing rows"));
  CELLM_ASSIGN_OR_RETURN(Picture out, NewPicture(width, height, allocator, "resizing rows"));
  ResizeRows(between, taps, &sums, &out);
  return out;
}

}  // namespace cellm::media
