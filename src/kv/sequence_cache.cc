#include "kv/sequence_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checked.h"
#include "kv/page_pool.h"
#include "tensor/half.h"

namespace cellm {
namespace {

// Layers that forget alike.
struct Group {
  int32_t window = 0;
  std::vector<int32_t> layers;
  // Of layers[i]: where its K and V lie in a page. [1]: in a demoted one.
  std::vector<KvPlaces> places[2];
  size_t page_bytes[2] = {};
};

// The pages of one group of one sequence: [0, first) have left the window, [first, end) exist, the
// first `demoted` of them in fewer bits.
struct Table {
  Array<uint8_t*> pages;
  Array<PageRef> refs;
  int32_t first = 0;
  int32_t end = 0;
  int32_t demoted = 0;
  std::vector<PageRef> taken;  // by Grow(), for what Commit() demotes
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
  int32_t demoted = 0;  // pages [0, demoted) are in fewer bits
  std::vector<PageRef> refs;
};

struct Snapshot {
  bool used = false;
  int32_t tokens = 0;
  std::vector<SnapshotTable> tables;  // [groups]
  Array<float> state;
};

// A row of a page in the model's columns, whatever its format.
void ReadStoredRow(const KvLayout& layout, KvRole role, int32_t page_tokens, int32_t slot,
                   const uint8_t* head, float* out) {
  if (KvIsCoded(layout.type)) return ReadKvRow(layout, role, page_tokens, slot, head, out);
  // Keys lie in lanes of 16 tokens, values row by row.
  const int64_t dim = layout.dim;
  const bool key = role == KvRole::kKey;
  const int64_t first = key ? slot / 16 * dim * 16 + slot % 16 : slot * dim;
  const int64_t stride = key ? 16 : 1;
  for (int64_t d = 0; d < dim; ++d) {
    const int64_t at = first + d * stride;
    out[d] = layout.type == KvType::kF16 ? F16ToFloat(LoadLe<uint16_t>(head + at * 2))
                                         : LoadLe<float>(head + at * 4);
  }
}

}  // namespace

struct SequenceCache::Impl {
  std::vector<LayerStateSpec> specs;
  CacheOptions options;
  Allocator* allocator = nullptr;
  std::vector<Group> groups;
  std::vector<PagePool> pools;  // [groups], then those of demoted pages [groups]
  std::vector<Sequence> sequences;
  std::vector<Snapshot> snapshots;
  int64_t state_floats = 0;
  std::vector<int32_t> group_of_layer;  // whose pages it reads; -1: none
  Array<float> demote_rows;             // a row and its codes for each thread
  int32_t row_floats = 0;
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
  size_t PoolIndex(size_t group, bool demoted) const {
    return group + (demoted ? groups.size() : 0);
  }
  // Of page `index` of a Table or SnapshotTable.
  template <typename AnyTable>
  PagePool& PoolOf(size_t group, const AnyTable& table, int32_t index) {
    return pools[PoolIndex(group, index < table.demoted)];
  }
  template <typename Visit>
  void ForEachPage(size_t group, const SnapshotTable& table, const Visit& visit) {
    for (size_t i = 0; i < table.refs.size(); ++i) {
      visit(PoolOf(group, table, table.first + static_cast<int32_t>(i)), table.refs[i]);
    }
  }
  int32_t DemotedPages(size_t group, int32_t tokens) const {
    if (groups[group].window > 0) return 0;
    return static_cast<int32_t>(options.kv_type.DemotedTokens(tokens) / options.page_tokens);
  }
  const Snapshot& snapshot(int32_t index) const { return snapshots[static_cast<size_t>(index)]; }

  void MakeGroups();
  Result<Array<float>> AllocateState();
  int32_t FreeSnapshotIndex();
  Status AllocateSequence(Sequence* sequence);
  void FillLayerStates(Sequence* sequence);
  Result<PageRef> TakePage(size_t pool);
  Status GrowTable(size_t group, Sequence* sequence, int32_t count);
  // Drops pages [end, table.end) or [table.first, first).
  void CutEnd(size_t group, Table* table, int32_t end);
  void CutFront(size_t group, Table* table, int32_t first);
  void Release(Sequence* sequence);
  void GiveBackTaken(size_t group, Table* table);
  Status ReserveDemotion();
  // Fills the pages that Grow() took from those that they replace.
  void Demote(size_t group, Table* table);
  void DemoteLayer(size_t group, size_t layer, const uint8_t* from, uint8_t* to, int32_t worker);
  // What attention sees of it.
  void ShowDemoted(Sequence* sequence);
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
    group->layers.push_back(static_cast<int32_t>(i));
    const size_t page_tokens = static_cast<size_t>(options.page_tokens);
    const size_t heads = static_cast<size_t>(spec.kv_heads);
    for (const int form : {0, 1}) {
      const KvTypes types = form == 0 ? options.kv_type.types : options.kv_type.demoted;
      KvPlaces places;
      places.k_head_stride = page_tokens * KvTokenBytes(types.k, spec.head_dim);
      places.v_head_stride = page_tokens * KvTokenBytes(types.v, spec.head_dim_v);
      places.k_offset = group->page_bytes[form];
      places.v_offset = places.k_offset + heads * places.k_head_stride;
      group->page_bytes[form] = places.v_offset + heads * places.v_head_stride;
      group->places[form].push_back(places);
    }
  }
  for (const int form : {0, 1}) {
    for (const Group& group : groups) pools.emplace_back(group.page_bytes[form], *allocator);
  }
  group_of_layer.assign(specs.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int32_t layer : groups[g].layers) {
      group_of_layer[static_cast<size_t>(layer)] = static_cast<int32_t>(g);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kv_from >= 0) {
      group_of_layer[i] = group_of_layer[static_cast<size_t>(specs[i].kv_from)];
    }
  }
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
      KvSlice& slice = sequence->layers[static_cast<size_t>(groups[g].layers[i])].kv;
      slice.pages = sequence->tables[g].pages.data();
      slice.page_tokens = options.page_tokens;
      slice.places = groups[g].places[0][i];
      slice.demoted_places = groups[g].places[1][i];
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kv_from < 0) continue;
    sequence->layers[i].kv = sequence->layers[static_cast<size_t>(specs[i].kv_from)].kv;
  }
}

Result<PageRef> SequenceCache::Impl::TakePage(size_t index) {
  PagePool& pool = pools[index];
  Result<PageRef> page = pool.Take(GrowthLimit());
  if (!page.ok()) {
    // Another group may sit on empty slabs.
    for (PagePool& other : pools) other.Trim();
    page = pool.Take(GrowthLimit());
  }
  // What another sequence left there must not reach a file.
  if (page.ok()) std::memset(pool.Bytes(page.value()), 0, pool.page_bytes());
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
  const int32_t demoted = DemotedPages(g, sequence->tokens + count);
  while (table.demoted + static_cast<int32_t>(table.taken.size()) < demoted) {
    CELLM_ASSIGN_OR_RETURN(const PageRef page, TakePage(PoolIndex(g, true)));
    table.taken.push_back(page);
  }
  return OkStatus();
}

void SequenceCache::Impl::GiveBackTaken(size_t g, Table* table) {
  for (const PageRef page : table->taken) pools[PoolIndex(g, true)].Release(page);
  table->taken.clear();
}

Status SequenceCache::Impl::ReserveDemotion() {
  if (!options.kv_type.demotes()) return OkStatus();
  for (const LayerStateSpec& spec : specs) {
    row_floats = std::max({row_floats, 3 * spec.head_dim, 3 * spec.head_dim_v});
  }
  const int32_t threads = options.pool == nullptr ? 1 : options.pool->threads();
  CELLM_ASSIGN_OR_RETURN(demote_rows,
                         Array<float>::Zeroed(*allocator, static_cast<size_t>(threads * row_floats),
                                              MemoryClass::kCache, "rows that are demoted"));
  return OkStatus();
}

// Rows are read as attention reads them and coded like new ones.
void SequenceCache::Impl::DemoteLayer(size_t g, size_t layer, const uint8_t* from, uint8_t* to,
                                      int32_t worker) {
  const LayerStateSpec& spec = specs[static_cast<size_t>(groups[g].layers[layer])];
  const int32_t page_tokens = options.page_tokens;
  float* const row = demote_rows.data() + int64_t{worker} * row_floats;
  const KvPlaces& old_places = groups[g].places[0][layer];
  const KvPlaces& new_places = groups[g].places[1][layer];
  for (const KvRole role : {KvRole::kKey, KvRole::kValue}) {
    const bool key = role == KvRole::kKey;
    const int32_t dim = key ? spec.head_dim : spec.head_dim_v;
    const KvTypes types = options.kv_type.types;
    const KvTypes demoted_types = options.kv_type.demoted;
    const KvLayout before = MakeKvLayout(key ? types.k : types.v, dim);
    const KvLayout after = MakeKvLayout(key ? demoted_types.k : demoted_types.v, dim);
    for (size_t head = 0; head < static_cast<size_t>(spec.kv_heads); ++head) {
      const uint8_t* const source =
          from + (key ? old_places.k_offset + head * old_places.k_head_stride
                      : old_places.v_offset + head * old_places.v_head_stride);
      uint8_t* const target = to + (key ? new_places.k_offset + head * new_places.k_head_stride
                                        : new_places.v_offset + head * new_places.v_head_stride);
      for (int32_t slot = 0; slot < page_tokens; ++slot) {
        ReadStoredRow(before, role, page_tokens, slot, source, row);
        uint8_t* const codes = reinterpret_cast<uint8_t*>(row + 2 * dim);
        const uint16_t scale = EncodeKvRow(after, role, row, row + dim, codes);
        PutKvRow(after, role, codes, scale, page_tokens, slot, target);
      }
    }
  }
}

void SequenceCache::Impl::Demote(size_t g, Table* table) {
  if (table->taken.empty()) return;
  PagePool& pool = pools[PoolIndex(g, true)];
  const int32_t layers = static_cast<int32_t>(groups[g].layers.size());
  const int32_t tiles = static_cast<int32_t>(table->taken.size()) * layers;
  const auto demote = [&](int32_t tile, int32_t worker) {
    const size_t page = static_cast<size_t>(tile / layers);
    DemoteLayer(g, static_cast<size_t>(tile % layers),
                table->pages[static_cast<size_t>(table->demoted) + page],
                pool.Bytes(table->taken[page]), worker);
  };
  if (options.pool != nullptr) {
    options.pool->For(tiles, demote);
  } else {
    for (int32_t tile = 0; tile < tiles; ++tile) demote(tile, 0);
  }
  for (const PageRef page : table->taken) {
    const size_t index = static_cast<size_t>(table->demoted++);
    pools[g].Release(table->refs[index]);
    table->refs[index] = page;
    table->pages[index] = pool.Bytes(page);
  }
  table->taken.clear();
}

void SequenceCache::Impl::ShowDemoted(Sequence* sequence) {
  if (!options.kv_type.demotes()) return;
  for (size_t i = 0; i < specs.size(); ++i) {
    const int32_t group = group_of_layer[i];
    if (group < 0) continue;
    sequence->layers[i].kv.demoted_tokens =
        sequence->tables[static_cast<size_t>(group)].demoted * options.page_tokens;
  }
}

void SequenceCache::Impl::CutEnd(size_t g, Table* table, int32_t end) {
  end = std::max(end, table->first);
  while (table->end > end) {
    const size_t index = static_cast<size_t>(--table->end);
    PoolOf(g, *table, table->end).Release(table->refs[index]);
    table->refs[index] = PageRef();
    table->pages[index] = nullptr;
  }
  table->demoted = std::min(table->demoted, end);
}

void SequenceCache::Impl::CutFront(size_t g, Table* table, int32_t first) {
  first = std::min(first, table->end);
  while (table->first < first) {
    const size_t index = static_cast<size_t>(table->first);
    PoolOf(g, *table, table->first++).Release(table->refs[index]);
    table->refs[index] = PageRef();
    table->pages[index] = nullptr;
  }
}

void SequenceCache::Impl::Release(Sequence* sequence) {
  for (size_t g = 0; g < sequence->tables.size(); ++g) {
    GiveBackTaken(g, &sequence->tables[g]);
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
  CELLM_RETURN_IF_ERROR(CheckDemotion(layers, options.kv_type, options.page_tokens));
  std::unique_ptr<SequenceCache> cache(new SequenceCache());
  Impl& impl = *cache->impl_;
  impl.specs.assign(layers.begin(), layers.end());
  impl.options = options;
  impl.allocator = &allocator;
  impl.MakeGroups();
  CELLM_RETURN_IF_ERROR(impl.ReserveDemotion());
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
    target.demoted = source.demoted;
    for (int32_t i = source.first; i < source.end; ++i) {
      const size_t index = static_cast<size_t>(i);
      target.refs[index] = source.refs[index];
      target.pages[index] = source.pages[index];
      impl_->PoolOf(g, source, i).AddReference(source.refs[index]);
    }
  }
  impl_->ShowDemoted(&to);
  std::copy(from.state.begin(), from.state.end(), to.state.begin());
  return copy;
}

int32_t SequenceCache::tokens(int32_t slot) const {
  return impl_->sequences[static_cast<size_t>(slot)].tokens;
}

int32_t SequenceCache::MostTokens(int32_t position) const {
  const KvStorage& storage = impl_->options.kv_type;
  if (!storage.demotes()) return INT32_MAX;
  const int64_t next = storage.DemotedTokens(position) + kKvSegment + storage.demote_after;
  return static_cast<int32_t>(std::min<int64_t>(next - position, INT32_MAX));
}

Status SequenceCache::Grow(int32_t slot, int32_t count) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  CELLM_CHECK(count <= MostTokens(sequence.tokens), "a step goes past where tokens are demoted");
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
    impl_->Demote(g, &sequence.tables[g]);
    impl_->CutFront(g, &sequence.tables[g], impl_->FirstLivePage(g, sequence.tokens));
  }
  impl_->ShowDemoted(&sequence);
}

void SequenceCache::Cancel(int32_t slot) {
  Sequence& sequence = impl_->sequences[static_cast<size_t>(slot)];
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->GiveBackTaken(g, &sequence.tables[g]);
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
      if (impl_->DemotedPages(g, position) < sequence.tables[g].demoted) {
        return Unsupported("rewind to %d of %d: tokens that were new there are in fewer bits now",
                           position, sequence.tokens);
      }
    }
  }
  sequence.tokens = position;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->CutEnd(g, &sequence.tables[g], impl_->PagesFor(position));
    if (position == 0) sequence.tables[g].first = sequence.tables[g].end = 0;
  }
  if (position == 0) std::fill(sequence.state.begin(), sequence.state.end(), 0.0f);
  impl_->ShowDemoted(&sequence);
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
    table.demoted = from.tables[g].demoted;
    for (int32_t i = table.first; i < from.tables[g].end; ++i) {
      table.refs.push_back(from.tables[g].refs[static_cast<size_t>(i)]);
      impl_->PoolOf(g, table, i).AddReference(table.refs.back(), PagePool::Holder::kSnapshot);
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
    table.demoted = impl_->DemotedPages(g, tokens);
    for (int32_t i = table.first; i < impl_->PagesFor(tokens); ++i) {
      PagePool& pool = impl_->PoolOf(g, table, i);
      const Result<PageRef> page = impl_->TakePage(impl_->PoolIndex(g, i < table.demoted));
      if (!page.ok()) {
        DropSnapshot(index);
        return page.status();
      }
      table.refs.push_back(page.value());
      pool.AddReference(page.value(), PagePool::Holder::kSnapshot);
      pool.Release(page.value());
    }
  }
  return index;
}

void SequenceCache::DropSnapshot(int32_t index) {
  Snapshot& snapshot = impl_->snapshots[static_cast<size_t>(index)];
  CELLM_CHECK(snapshot.used, "a snapshot is dropped twice");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->ForEachPage(g, snapshot.tables[g], [](PagePool& pool, PageRef ref) {
      pool.Release(ref, PagePool::Holder::kSnapshot);
    });
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
    impl_->ForEachPage(g, snapshot.tables[g], [&bytes](PagePool& pool, PageRef ref) {
      if (pool.References(ref) == 1) bytes += pool.page_bytes();
    });
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
      const PagePool& pool = impl_->PoolOf(g, table, i);
      if (pool.SequenceReferences(table.refs[static_cast<size_t>(i)]) == 1) {
        bytes += pool.page_bytes();
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
    if (impl_->DemotedPages(g, position) < impl_->DemotedPages(g, tokens)) return false;
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
    target.demoted = source.demoted;
    for (int32_t i = target.first; i < target.end; ++i) {
      const PageRef ref = source.refs[static_cast<size_t>(i - source.first)];
      PagePool& pool = impl_->PoolOf(g, source, i);
      pool.AddReference(ref);
      target.refs[static_cast<size_t>(i)] = ref;
      target.pages[static_cast<size_t>(i)] = pool.Bytes(ref);
    }
  }
  impl_->ShowDemoted(&to);
  std::copy(snapshot.state.begin(), snapshot.state.end(), to.state.begin());
}

std::vector<std::span<uint8_t>> SequenceCache::Contents(int32_t index) {
  Snapshot& snapshot = impl_->snapshots[static_cast<size_t>(index)];
  std::vector<std::span<uint8_t>> spans;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->ForEachPage(g, snapshot.tables[g], [&spans](PagePool& pool, PageRef ref) {
      spans.emplace_back(pool.Bytes(ref), pool.page_bytes());
    });
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
  std::vector<int64_t> references(impl_->pools.size(), 0);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    for (const Sequence& sequence : impl_->sequences) {
      if (!sequence.used) continue;
      const Table& table = sequence.tables[g];
      CELLM_CHECK(table.first <= impl_->FirstLivePage(g, sequence.tokens),
                  "a page that a query can see was given back");
      CELLM_CHECK(table.end == impl_->PagesFor(sequence.tokens),
                  "a table has not the pages of its tokens");
      CELLM_CHECK(table.demoted == impl_->DemotedPages(g, sequence.tokens) && table.taken.empty(),
                  "a table has other pages demoted than its tokens say");
      for (int32_t i = 0; i < static_cast<int32_t>(table.pages.size()); ++i) {
        const size_t index = static_cast<size_t>(i);
        const bool inside = i >= table.first && i < table.end;
        const PagePool& pool = impl_->PoolOf(g, table, i);
        CELLM_CHECK(table.refs[index].exists() == inside, "a table has a page outside its range");
        CELLM_CHECK(table.pages[index] == (inside ? pool.Bytes(table.refs[index]) : nullptr),
                    "a table shows another page than it holds");
        if (inside)
          CELLM_CHECK(pool.References(table.refs[index]) > 0, "a table holds a free page");
        references[impl_->PoolIndex(g, i < table.demoted)] += inside ? 1 : 0;
      }
    }
    for (const Snapshot& snapshot : impl_->snapshots) {
      if (!snapshot.used) continue;
      const SnapshotTable& table = snapshot.tables[g];
      CELLM_CHECK(table.first == impl_->FirstLivePage(g, snapshot.tokens) &&
                      table.demoted == impl_->DemotedPages(g, snapshot.tokens) &&
                      table.first + static_cast<int32_t>(table.refs.size()) ==
                          std::max(table.first, impl_->PagesFor(snapshot.tokens)),
                  "a snapshot has not the pages of its tokens");
      for (size_t i = 0; i < table.refs.size(); ++i) {
        ++references[impl_->PoolIndex(g, table.first + static_cast<int32_t>(i) < table.demoted)];
      }
    }
  }
  for (size_t i = 0; i < impl_->pools.size(); ++i) {
    impl_->pools[i].CheckInvariants();
    int64_t counted = 0;
    impl_->pools[i].ForEachPage([&counted](PageRef, int32_t count) { counted += count; });
    CELLM_CHECK(counted == references[i], "a page is counted by more or fewer tables than hold it");
  }
}

}  // namespace cellm
