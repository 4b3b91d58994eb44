#ifndef CELLM_SRC_MODEL_HOLDING_H_
#define CELLM_SRC_MODEL_HOLDING_H_

// How the weights of a model are held: where the file has them, or in memory of our own.
//
//   mapped   pages of the file: clean, shared with other processes, the kernel's to drop when
//            memory is short. Nothing is read before it is used.
//   loaded   read once, in large pieces by several threads, into memory of the allocator (huge
//            pages). Faster, most of all in virtual machines, where walking the page tables of a
//            mapping is dear; the file's pages are not kept.
//
// Matrices that had to be packed are ours either way and are not loaded a second time. A table that
// is only looked up by row may stay "on flash": its rows are read from the mapping when they are
// needed and their pages are given back now and then, so that a table of hundreds of megabytes
// costs about what its rows of the moment take.

#include <cstdint>
#include <vector>

#include "backend/weight.h"
#include "base/allocator.h"
#include "base/status.h"
#include "format/model_file.h"
#include "platform/thread_pool.h"

namespace cellm {

enum class Holding : uint8_t { kAuto, kMapped, kLoaded };
enum class FlashTable : uint8_t { kDefault, kYes, kNo };  // kDefault: yes when there is a table

struct HoldingOptions {
  Holding holding = Holding::kMapped;
  FlashTable embedding_on_flash = FlashTable::kDefault;
  bool lock = false;  // keep matrices in memory (mlock), but for a table on flash
  // kAuto loads when the model's bytes and a quarter more, and 256 MiB for everything else, fit
  // into this. 0: unknown, so mapped.
  uint64_t available_bytes = 0;
  platform::ThreadPool* pool = nullptr;  // reads pieces in parallel; null: the caller alone
};

// What became of it.
struct HoldingReport {
  Holding holding = Holding::kMapped;  // never kAuto
  uint64_t mapped_bytes = 0;           // matrices used where the file has them
  uint64_t loaded_bytes = 0;           // matrices read into memory
  uint64_t packed_bytes = 0;           // matrices brought into another layout
  uint64_t flash_bytes = 0;            // tables looked up in the file
  bool locked = false;
};

// Decides for one model file and carries it out, matrix by matrix, while a family binds.
class WeightHolder {
 public:
  // `file` and `allocator` must outlive the holder.
  WeightHolder(const format::ModelFile& file, const HoldingOptions& options, Allocator& allocator);

  // To be called with every matrix that a family binds, after it was prepared. A weight that is to
  // be loaded gets its memory here and its bytes at Finish(). `is_table`: only looked up by row.
  // OutOfMemory.
  Status Take(bool is_table, Weight* weight);
  // Reads what is outstanding and locks. After a failure the weights must not be used.
  //   Io           the file cannot be read, or locking failed
  //   OutOfMemory  the system allows no more locked memory
  //   InvalidArgument  a table on flash was asked for and there is none
  Status Finish();

  const HoldingReport& report() const { return report_; }

 private:
  // One stretch of a file that becomes `bytes` of memory.
  struct Piece {
    const platform::FileMapping* file;
    uint64_t offset;
    uint8_t* target;
    uint64_t bytes;
  };
  const platform::FileMapping* FileOf(std::span<const uint8_t> data) const;

  const format::ModelFile& file_;
  HoldingOptions options_;
  Allocator& allocator_;
  HoldingReport report_;
  std::vector<Piece> pieces_;
  std::vector<std::span<const uint8_t>> to_lock_;
};

// The bytes of the file's tensors that a text model may use; for the decision above.
uint64_t TensorBytesOf(const format::ModelFile& file);

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_HOLDING_H_
