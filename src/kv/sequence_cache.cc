#include "kv/sequence_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "kv/page_pool.h"

namespace cellm {
namespace {

// Layers that forget alike.
struct Group {
  int32_t window = 0;
  size_t page_bytes = 0;
  std::vector<int32_t> layers;
  // Of layers[i]: where its K and V begin in a page.
  std::vector<size_t> k_offsets, v_offsets;
};

// The pages of one group of one sequence: [0, first) have left the window, [first, end) exist.
struct Table {
  Array<uint8_t*> pages;
  Array<PageRef> refs;
  int32_t first = 0;
  int32_t end = 0;
};

struct Sequence {
  bool used = false;
  int32_t tokens = 0;
  std::vector<Table> tables;  // [groups]
  Array<float> state;         // all layers' fixed-size parts
  Array<LayerState> layers;
};

// Pages [first, first + refs.size()) of one group.
struct SnapshotTable {
  int32_t first = 0;
  std::vector<PageRef> refs;
};

struct Snapshot {
  bool used = false;
  int32_t tokens = 0;
  std::vector<SnapshotTable> tables;  // [groups]
  Array<float> state;
};

}  // namespace

struct SequenceCache::Impl {
  std::vector<LayerStateSpec> specs;
  CacheOptions options;
  Allocator* allocator = nullptr;
  std::vector<Group> groups;
  std::vector<PagePool> pools;  // [groups]
  std::vector<Sequence> sequences;
  std::vector<Snapshot> snapshots;
  int64_t state_floats = 0;
  mutable CacheStats stats;

  int32_t TablePages() const {
    return static_cast<int32_t>(CeilDiv<int64_t>(options.context_tokens, options.page_tokens));
  }
  int32_t PagesFor(int32_t tokens) const {
    return static_cast<int32_t>(CeilDiv<int64_t>(tokens, options.page_tokens));
  }

  uint64_t HeldBytes() const {
    uint64_t bytes = stats.state_bytes;
    for (const PagePool& pool : pools) {
      bytes += static_cast<uint64_t>(pool.used_pages() + pool.free_pages()) * pool.page_bytes();
    }
    return bytes;
  }
  uint64_t GrowthLimit() const {
    if (options.max_bytes == 0) return UINT64_MAX;
    const uint64_t held = HeldBytes();
    return held < options.max_bytes ? options.max_bytes - held : 0;
  }

  // The first page that a query at `tokens` or later can see.
  int32_t FirstLivePage(size_t group, int32_t tokens) const {
    return static_cast<int32_t>(FirstLiveToken(groups[group].window, tokens) / options.page_tokens);
  }
  const Snapshot& snapshot(int32_t index) const { return snapshots[static_cast<size_t>(index)]; }

  void MakeGroups();
  Result<Array<float>> AllocateState();
  int32_t FreeSnapshotIndex();
  Status AllocateSequence(Sequence* sequence);
  void FillLayerStates(Sequence* sequence);
  Result<PageRef> TakePage(size_t group);
  Status GrowTable(size_t group, Sequence* sequence, int32_t count);
  // Drops pages [end, table.end) or [table.first, first).
  void CutEnd(size_t group, Table* table, int32_t end);
  void CutFront(size_t group, Table* table, int32_t first);
  void Release(Sequence* sequence);
};

void SequenceCache::Impl::MakeGroups() {
  for (size_t i = 0; i < specs.size(); ++i) {
    const LayerStateSpec& spec = specs[i];
    state_floats += spec.recurrent_floats + spec.conv_floats();
    if (!spec.stores_kv()) continue;
    Group* group = nullptr;
    for (Group& candidate : groups) {
      if (candidate.window == spec.window) group = &candidate;
    }
    if (group == nullptr) {
      groups.emplace_back();
      group = &groups.back();
      group->window = spec.window;
    }
    const size_t tokens_by_heads =
        static_cast<size_t>(options.page_tokens) * static_cast<size_t>(spec.kv_heads);
    group->layers.push_back(static_cast<int32_t>(i));
    group->k_offsets.push_back(group->page_bytes);
    group->page_bytes += tokens_by_heads * KvTokenBytes(options.kv_type.k, spec.head_dim);
    group->v_offsets.push_back(group->page_bytes);
    group->page_bytes += tokens_by_heads * KvTokenBytes(options.kv_type.v, spec.head_dim_v);
  }
  for (const Group& group : groups) pools.emplace_back(group.page_bytes, *allocator);
}

Result<Array<float>> SequenceCache::Impl::AllocateState() {
  const uint64_t state_bytes = static_cast<uint64_t>(state_floats) * sizeof(float);
  if (state_bytes > GrowthLimit()) {
    return OutOfMemory("sequence state: %llu bytes needed, %llu available",
                       static_cast<unsigned long long>(state_bytes),
                       static_cast<unsigned long long>(GrowthLimit()));
  }
  return Array<float>::Zeroed(*allocator, static_cast<size_t>(state_floats), MemoryClass::kCache,
                              "sequence state");
}

int32_t SequenceCache::Impl::FreeSnapshotIndex() {
  for (size_t i = 0; i < snapshots.size(); ++i) {
    if (!snapshots[i].used) return static_cast<int32_t>(i);
  }
  snapshots.emplace_back();
  return static_cast<int32_t>(snapshots.size() - 1);
}

Status SequenceCache::Impl::AllocateSequence(Sequence* sequence) {
  const size_t pages = static_cast<size_t>(TablePages());
  sequence->tables.resize(groups.size());
  for (Table& table : sequence->tables) {
    CELLM_ASSIGN_OR_RETURN(
        table.pages, Array<uint8_t*>::Zeroed(*allocator, pages, MemoryClass::kCache, "page table"));
    CELLM_ASSIGN_OR_RETURN(
        table.refs, Array<PageRef>::Zeroed(*allocator, pages, MemoryClass::kCache, "page table"));
    std::fill(table.refs.begin(), table.refs.end(), PageRef());
    table.first = table.end = 0;
  }
  CELLM_ASSIGN_OR_RETURN(sequence->state, AllocateState());
  CELLM_ASSIGN_OR_RETURN(
      sequence->layers,
      Array<LayerState>::Zeroed(*allocator, specs.size(), MemoryClass::kCache, "layer states"));
  FillLayerStates(sequence);
  return OkStatus();
}

void SequenceCache::Impl::FillLayerStates(Sequence* sequence) {
  float* next = sequence->state.data();
  for (size_t i = 0; i < specs.size(); ++i) {
    LayerState& layer = sequence->layers[i];
    layer = LayerState();
    if (specs[i].recurrent_floats > 0) {
      layer.recurrent = next;
      next += specs[i].recurrent_floats;
    }
    if (specs[i].conv_floats() > 0) {
      layer.conv = next;
      next += specs[i].conv_floats();
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].layers.size(); ++i) {
      const LayerStateSpec& spec = specs[static_cast<size_t>(groups[g].layers[i])];
      const size_t page_tokens = static_cast<size_t>(options.page_tokens);
      KvSlice& slice = sequence->layers[static_cast<size_t>(groups[g].layers[i])].kv;
      slice.pages = sequence->tables[g].pages.data();
      slice.page_tokens = options.page_tokens;
      slice.k_offset = groups[g].k_offsets[i];
      slice.v_offset = groups[g].v_offsets[i];
      slice.k_head_stride = page_tokens * KvTokenBytes(options.kv_type.k, spec.head_dim);
      slice.v_head_stride = page_tokens * KvTokenBytes(options.kv_type.v, spec.head_dim_v);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kv_from < 0) continue;
    sequence->layers[i].kv = sequence->layers[static_cast<size_t>(specs[i].kv_from)].kv;
  }
}

Result<PageRef> SequenceCache::Impl::TakePage(size_t group) {
  Result<PageRef> page = pools[group].Take(GrowthLimit());
  if (!page.ok()) {
    // Another group may sit on empty slabs.
    for (PagePool& pool : pools) pool.Trim();
    page = pools[group].Take(GrowthLimit());
  }
  // What another sequence left there must not reach a file.
  if (page.ok()) std::memset(pools[group].Bytes(page.value()), 0, pools[group].page_bytes());
  return page;
}

Status SequenceCache::Impl::GrowTable(size_t g, Sequence* sequence, int32_t count) {
  Table& table = sequence->tables[g];
  // The page that the first new token lands in may be shared.
  const int32_t written = sequence->tokens / options.page_tokens;
  if (written < table.end && pools[g].References(table.refs[static_cast<size_t>(written)]) > 1) {
    const size_t index = static_cast<size_t>(written);
    CELLM_ASSIGN_OR_RETURN(const PageRef copy, TakePage(g));
    uint8_t* const bytes = pools[g].Bytes(copy);
    std::memcpy(bytes, table.pages[index], pools[g].page_bytes());
    pools[g].Release(table.refs[index]);
    table.refs[index] = copy;
    table.pages[index] = bytes;
    ++stats.pages_copied;
  }
  const int32_t end = PagesFor(sequence->tokens + count);
  while (table.end < end) {
    CELLM_ASSIGN_OR_RETURN(const PageRef page, TakePage(g));
    table.refs[static_cast<size_t>(table.end)] = page;
    table.pages[static_cast<size_t>(table.end)] = pools[g].Bytes(page);
    ++table.end;
  }
  return OkStatus();
}

void SequenceCache::Impl::CutEnd(size_t g, Table* table, int32_t end) {
  end = std::max(end, table->first);
  while (table->end > end) {
    const size_t index = static_cast<size_t>(--table->end);
    pools[g].Release(table->refs[index]);
    table->refs[index] = PageRef();
    table->pages[index] = nullptr;
  }
}

void SequenceCache::Impl::CutFront(size_t g, Table* table, int32_t first) {
  first = std::min(first, table->end);
  while (table->first < first) {
    const size_t index = static_cast<size_t>(table->first++);
    pools[g].Release(table->refs[index]);
    table->refs[index] = PageRef();
    table->pages[index] = nullptr;
  }
}

void SequenceCache::Impl::Release(Sequence* sequence) {
  for (size_t g = 0; g < sequence->tables.size(); ++g) {
    CutFront(g, &sequence->tables[g], sequence->tables[g].end);
  }
  *sequence = Sequence();
}

SequenceCache::SequenceCache() : impl_(std::make_unique<Impl>()) {}

SequenceCache::~SequenceCache() = default;

Result<std::unique_ptr<SequenceCache>> SequenceCache::Create(std::span<const LayerStateSpec> layers,
                                                             const CacheOptions& options,
                                                             Allocator& allocator) {
  if (options.page_tokens < 16 || options.page_tokens % 16 != 0 || options.page_tokens > 4096) {
    return InvalidArgument("page tokens: %d is not a multiple of 16 in [16, 4096]",
                           options.page_tokens);
  }
  if (options.context_tokens < 1) {
    return InvalidArgument("context: %d tokens", options.context_tokens);
  }
  if (options.max_sequences < 1 || options.max_sequences > 65536) {
    return InvalidArgument("sequences: %d is not in [1, 65536]", options.max_sequences);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerStateSpec& spec = layers[i];
    CELLM_CHECK(spec.kv_from < static_cast<int32_t>(i) &&
                    (spec.kv_from < 0 || layers[static_cast<size_t>(spec.kv_from)].stores_kv()),
                "a layer shares keys and values that no earlier layer stores");
    CELLM_CHECK(!spec.stores_kv() || (spec.head_dim % 2 == 0 && spec.head_dim_v % 2 == 0),
                "a head width is odd: pages would not be aligned");
  }
  std::unique_ptr<SequenceCache> cache(new SequenceCache());
  Impl& impl = *cache->impl_;
  impl.specs.assign(layers.begin(), layers.end());
  impl.options = options;
  impl.allocator = &allocator;
  impl.MakeGroups();
  impl.sequences.resize(static_cast<size_t>(options.max_sequences));
  return cache;
}

Result<int32_t> SequenceCache::CreateSequence() {
  for (size_t i = 0; i < impl_->sequences.size(); ++i) {
    Sequence& sequence = impl_->sequences[i];
    if (sequence.used) continue;
    const Status status = impl_->AllocateSequence(&sequence);
    if (!status.ok()) {
      sequence = Sequence();
      return status;
    }
    sequence.used = true;
    impl_->stats.state_bytes += sequence.state.size() * sizeof(float);
    return static_cast<int32_t>(i);
  }
  return Busy("all %zu sequences are in use", impl_->sequences.size());
}

void SequenceCache::FreeSequence(int32_t slot) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  CELLM_CHECK(sequence.used, "a free sequence is freed");
  impl_->stats.state_bytes -= sequence.state.size() * sizeof(float);
  impl_->Release(&sequence);
}

Result<int32_t> SequenceCache::Fork(int32_t slot) {
  CELLM_ASSIGN_OR_RETURN(const int32_t copy, CreateSequence());
  const Sequence& from = impl_->sequences[static_cast<size_t>(slot)];
  Sequence& to = impl_->sequences[static_cast<size_t>(copy)];
  to.tokens = from.tokens;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const Table& source = from.tables[g];
    Table& target = to.tables[g];
    target.first = source.first;
    target.end = source.end;
    for (size_t i = static_cast<size_t>(source.first); i < static_cast<size_t>(source.end); ++i) {
      target.refs[i] = source.refs[i];
      target.pages[i] = source.pages[i];
      impl_->pools[g].AddReference(source.refs[i]);
    }
  }
  std::copy(from.state.begin(), from.state.end(), to.state.begin());
  return copy;
}

int32_t SequenceCache::tokens(int32_t slot) const {
  return impl_->sequences[static_cast<size_t>(slot)].tokens;
}

Status SequenceCache::Grow(int32_t slot, int32_t count) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  CELLM_CHECK(count >= 0 && count <= impl_->options.context_tokens - sequence.tokens,
              "a sequence grows past its page table");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const Status status = impl_->GrowTable(g, &sequence, count);
    if (status.ok()) continue;
    const int64_t needed = PeakBytesPerSequence(impl_->specs, impl_->options.kv_type,
                                                impl_->options.page_tokens, sequence.tokens, count);
    const int64_t held = BytesPerSequence(impl_->specs, impl_->options.kv_type,
                                          impl_->options.page_tokens, sequence.tokens);
    Cancel(slot);
    if (impl_->options.max_bytes == 0) {
      return OutOfMemory("K/V cache: %lld more bytes needed for %d tokens, the allocator refuses",
                         static_cast<long long>(needed - held), count);
    }
    uint64_t available = impl_->GrowthLimit();
    for (const PagePool& pool : impl_->pools) {
      available += static_cast<uint64_t>(pool.free_pages()) * pool.page_bytes();
    }
    return OutOfMemory("K/V cache: %lld more bytes needed for %d tokens, %llu available of %llu",
                       static_cast<long long>(needed - held), count,
                       static_cast<unsigned long long>(available),
                       static_cast<unsigned long long>(impl_->options.max_bytes));
  }
  return OkStatus();
}

void SequenceCache::Commit(int32_t slot, int32_t count) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  sequence.tokens += count;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->CutFront(g, &sequence.tables[g], impl_->FirstLivePage(g, sequence.tokens));
  }
}

void SequenceCache::Cancel(int32_t slot) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->CutEnd(g, &sequence.tables[g], impl_->PagesFor(sequence.tokens));
  }
}

Status SequenceCache::Rewind(int32_t slot, int32_t position) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  if (position < 0 || position > sequence.tokens) {
    return OutOfRange("rewind to %d: the sequence has %d tokens", position, sequence.tokens);
  }
  if (position == sequence.tokens) return OkStatus();
  if (position > 0) {
    if (impl_->state_floats > 0) {
      return Unsupported("rewind to %d of %d: recurrent layers cannot go back", position,
                         sequence.tokens);
    }
    for (size_t g = 0; g < impl_->groups.size(); ++g) {
      if (impl_->FirstLivePage(g, position) < sequence.tables[g].first) {
        return Unsupported("rewind to %d of %d: earlier tokens have left a window of %d", position,
                           sequence.tokens, impl_->groups[g].window);
      }
    }
  }
  sequence.tokens = position;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->CutEnd(g, &sequence.tables[g], impl_->PagesFor(position));
    if (position == 0) sequence.tables[g].first = sequence.tables[g].end = 0;
  }
  if (position == 0) std::fill(sequence.state.begin(), sequence.state.end(), 0.0f);
  return OkStatus();
}

Result<int32_t> SequenceCache::TakeSnapshot(int32_t slot) {
  const Sequence& from = impl_->sequences[static_cast<size_t>(slot)];
  CELLM_CHECK(from.used, "a snapshot of a free sequence");
  Snapshot snapshot;
  CELLM_ASSIGN_OR_RETURN(snapshot.state, impl_->AllocateState());
  std::copy(from.state.begin(), from.state.end(), snapshot.state.begin());
  snapshot.used = true;
  snapshot.tokens = from.tokens;
  snapshot.tables.resize(impl_->groups.size());
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    SnapshotTable& table = snapshot.tables[g];
    // A rewound sequence may hold pages before the window: they are not kept.
    table.first = std::max(from.tables[g].first, impl_->FirstLivePage(g, from.tokens));
    for (int32_t i = table.first; i < from.tables[g].end; ++i) {
      table.refs.push_back(from.tables[g].refs[static_cast<size_t>(i)]);
      impl_->pools[g].AddReference(table.refs.back(), PagePool::Holder::kSnapshot);
    }
  }
  impl_->stats.state_bytes += snapshot.state.size() * sizeof(float);
  const int32_t index = impl_->FreeSnapshotIndex();
  impl_->snapshots[static_cast<size_t>(index)] = std::move(snapshot);
  return index;
}

Result<int32_t> SequenceCache::NewSnapshot(int32_t tokens) {
  CELLM_CHECK(tokens >= 0 && tokens <= impl_->options.context_tokens,
              "a snapshot is longer than the context");
  const int32_t index = impl_->FreeSnapshotIndex();
  {
    Snapshot& snapshot = impl_->snapshots[static_cast<size_t>(index)];
    CELLM_ASSIGN_OR_RETURN(snapshot.state, impl_->AllocateState());
    snapshot.used = true;
    snapshot.tokens = tokens;
    snapshot.tables.resize(impl_->groups.size());
    impl_->stats.state_bytes += snapshot.state.size() * sizeof(float);
  }
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    SnapshotTable& table = impl_->snapshots[static_cast<size_t>(index)].tables[g];
    table.first = impl_->FirstLivePage(g, tokens);
    for (int32_t i = table.first; i < impl_->PagesFor(tokens); ++i) {
      const Result<PageRef> page = impl_->TakePage(g);
      if (!page.ok()) {
        DropSnapshot(index);
        return page.status();
      }
      table.refs.push_back(page.value());
      impl_->pools[g].AddReference(page.value(), PagePool::Holder::kSnapshot);
      impl_->pools[g].Release(page.value());
    }
  }
  return index;
}

void SequenceCache::DropSnapshot(int32_t index) {
  Snapshot& snapshot = impl_->snapshots[static_cast<size_t>(index)];
  CELLM_CHECK(snapshot.used, "a snapshot is dropped twice");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    for (const PageRef ref : snapshot.tables[g].refs) {
      impl_->pools[g].Release(ref, PagePool::Holder::kSnapshot);
    }
  }
  impl_->stats.state_bytes -= snapshot.state.size() * sizeof(float);
  snapshot = Snapshot();
}

int32_t SequenceCache::snapshot_tokens(int32_t index) const {
  return impl_->snapshot(index).tokens;
}

uint64_t SequenceCache::SnapshotOwnBytes(int32_t index) const {
  const Snapshot& snapshot = impl_->snapshot(index);
  uint64_t bytes = snapshot.state.size() * sizeof(float);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    for (const PageRef ref : snapshot.tables[g].refs) {
      if (impl_->pools[g].References(ref) == 1) bytes += impl_->pools[g].page_bytes();
    }
  }
  return bytes;
}

uint64_t SequenceCache::SnapshotOnlyBytes() const {
  uint64_t bytes = 0;
  for (const PagePool& pool : impl_->pools) {
    bytes += static_cast<uint64_t>(pool.SnapshotOnlyPages()) * pool.page_bytes();
  }
  for (const Snapshot& snapshot : impl_->snapshots) bytes += snapshot.state.size() * sizeof(float);
  return bytes;
}

uint64_t SequenceCache::SequenceOwnBytes(int32_t slot) const {
  const Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  uint64_t bytes = sequence.state.size() * sizeof(float);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const Table& table = sequence.tables[g];
    for (int32_t i = table.first; i < table.end; ++i) {
      if (impl_->pools[g].SequenceReferences(table.refs[static_cast<size_t>(i)]) == 1) {
        bytes += impl_->pools[g].page_bytes();
      }
    }
  }
  return bytes;
}

uint64_t SequenceCache::CopyBytes(int32_t slot) const {
  const Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  const int32_t written = sequence.tokens / impl_->options.page_tokens;
  uint64_t bytes = 0;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const Table& table = sequence.tables[g];
    if (written < table.end &&
        impl_->pools[g].SequenceReferences(table.refs[static_cast<size_t>(written)]) > 1) {
      bytes += impl_->pools[g].page_bytes();
    }
  }
  return bytes;
}

bool SequenceCache::CanCut(int32_t tokens, int32_t position) const {
  if (position < 0 || position > tokens) return false;
  if (position == tokens || position == 0) return true;
  if (impl_->state_floats > 0) return false;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    if (impl_->FirstLivePage(g, position) < impl_->FirstLivePage(g, tokens)) return false;
  }
  return true;
}

void SequenceCache::StartFrom(int32_t slot, int32_t index, int32_t position) {
  const Snapshot& snapshot = impl_->snapshot(index);
  Sequence& to = impl_->sequences[static_cast<size_t>(slot)];
  CELLM_CHECK(to.used && to.tokens == 0 && CanCut(snapshot.tokens, position),
              "a sequence cannot start from there");
  if (position == 0) return;
  to.tokens = position;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const SnapshotTable& source = snapshot.tables[g];
    Table& target = to.tables[g];
    target.first = std::max(source.first, impl_->FirstLivePage(g, position));
    target.end = std::max(target.first, impl_->PagesFor(position));
    for (int32_t i = target.first; i < target.end; ++i) {
      const PageRef ref = source.refs[static_cast<size_t>(i - source.first)];
      impl_->pools[g].AddReference(ref);
      target.refs[static_cast<size_t>(i)] = ref;
      target.pages[static_cast<size_t>(i)] = impl_->pools[g].Bytes(ref);
    }
  }
  std::copy(snapshot.state.begin(), snapshot.state.end(), to.state.begin());
}

std::vector<std::span<uint8_t>> SequenceCache::Contents(int32_t index) {
  Snapshot& snapshot = impl_->snapshots[static_cast<size_t>(index)];
  std::vector<std::span<uint8_t>> spans;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    for (const PageRef ref : snapshot.tables[g].refs) {
      spans.emplace_back(impl_->pools[g].Bytes(ref), impl_->pools[g].page_bytes());
    }
  }
  if (!snapshot.state.empty()) {
    spans.emplace_back(reinterpret_cast<uint8_t*>(snapshot.state.data()),
                       snapshot.state.size() * sizeof(float));
  }
  return spans;
}

void SequenceCache::set_max_bytes(uint64_t bytes) { impl_->options.max_bytes = bytes; }

const LayerState* SequenceCache::layers(int32_t slot) const {
  return impl_->sequences[static_cast<size_t>(slot)].layers.data();
}

void SequenceCache::Trim() {
  for (PagePool& pool : impl_->pools) pool.Trim();
}

const CacheStats& SequenceCache::stats() const {
  CacheStats& stats = impl_->stats;
  stats.page_bytes_used = stats.page_bytes_free = stats.table_bytes = 0;
  for (const PagePool& pool : impl_->pools) {
    stats.page_bytes_used += static_cast<uint64_t>(pool.used_pages()) * pool.page_bytes();
    stats.page_bytes_free += static_cast<uint64_t>(pool.free_pages()) * pool.page_bytes();
  }
  for (const Sequence& sequence : impl_->sequences) {
    for (const Table& table : sequence.tables) {
      stats.table_bytes += table.pages.size() * (sizeof(uint8_t*) + sizeof(PageRef));
    }
  }
  return stats;
}

void SequenceCache::CheckInvariants() const {
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const PagePool& pool = impl_->pools[g];
    pool.CheckInvariants();
    int64_t references = 0;
    for (const Sequence& sequence : impl_->sequences) {
      if (!sequence.used) continue;
      const Table& table = sequence.tables[g];
      CELLM_CHECK(table.first <= impl_->FirstLivePage(g, sequence.tokens),
                  "a page that a query can see was given back");
      CELLM_CHECK(table.end == impl_->PagesFor(sequence.tokens),
                  "a table has not the pages of its tokens");
      for (int32_t i = 0; i < static_cast<int32_t>(table.pages.size()); ++i) {
        const size_t index = static_cast<size_t>(i);
        const bool inside = i >= table.first && i < table.end;
        CELLM_CHECK(table.refs[index].exists() == inside, "a table has a page outside its range");
        CELLM_CHECK(table.pages[index] == (inside ? pool.Bytes(table.refs[index]) : nullptr),
                    "a table shows another page than it holds");
        if (inside)
          CELLM_CHECK(pool.References(table.refs[index]) > 0, "a table holds a free page");
        references += inside ? 1 : 0;
      }
    }
    for (const Snapshot& snapshot : impl_->snapshots) {
      if (!snapshot.used) continue;
      const SnapshotTable& table = snapshot.tables[g];
      CELLM_CHECK(table.first == impl_->FirstLivePage(g, snapshot.tokens) &&
                      table.first + static_cast<int32_t>(table.refs.size()) ==
                          std::max(table.first, impl_->PagesFor(snapshot.tokens)),
                  "a snapshot has not the pages of its tokens");
      references += static_cast<int64_t>(table.refs.size());
    }
    int64_t counted = 0;
    pool.ForEachPage([&counted](PageRef, int32_t count) { counted += count; });
    CELLM_CHECK(counted == references, "a page is counted by more or fewer tables than hold it");
  }
}

}  // namespace cellm
