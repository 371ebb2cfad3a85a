// Attention by the book over pages of floats.
#include "tests/support/fake_backend.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "attn/base/check.h"
#include "attn/base/error.h"

namespace attn::test {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

class FakeStore : public KvStore {
 public:
  FakeStore(AttentionSpec spec, int32_t num_pages, FakeDevice* device)
      : spec_(std::move(spec)), pages_(static_cast<size_t>(num_pages)), device_(device) {
    ++device_->num_stores;
  }
  ~FakeStore() override {
    --device_->num_stores;
    for (const auto& page : pages_) device_->num_committed_pages -= page.empty() ? 0 : 1;
  }

  const AttentionSpec& spec() const override { return spec_; }
  int32_t num_pages() const override { return static_cast<int32_t>(pages_.size()); }
  int64_t page_bytes() const override {
    return int64_t{spec_.num_layers} * spec_.page_size * slot_floats() * 4;
  }
  absl::Status CommitPages(PageId first, int32_t count) override {
    for (PageId page = first; page < first + count; ++page) {
      ATTN_CHECK(Page(page).empty(), "page ", page, " is committed twice");
      Page(page).assign(static_cast<size_t>(page_bytes() / 4), kPoison);
      ++device_->num_committed_pages;
    }
    return absl::OkStatus();
  }
  void ReleasePages(PageId first, int32_t count) override {
    for (PageId page = first; page < first + count; ++page) {
      ATTN_CHECK(!Page(page).empty(), "page ", page, " is released twice");
      Page(page) = {};
      --device_->num_committed_pages;
    }
  }

  // K of all heads, then V of all heads, of one slot.
  float* Slot(const PageList& pages, uint32_t layer, int64_t position) {
    const int64_t index = position / spec_.page_size;
    ATTN_CHECK(index < pages.num_pages, "position ", position, " has no page");
    return SlotOfPage(pages[static_cast<int32_t>(index)], layer, position % spec_.page_size);
  }
  float* SlotOfPage(PageId page, uint32_t layer, int64_t slot) {
    ATTN_CHECK(!Page(page).empty(), "page ", page, " has no memory");
    return Page(page).data() + (layer * int64_t{spec_.page_size} + slot) * slot_floats();
  }
  int64_t slot_floats() const {
    return int64_t{spec_.num_kv_heads} * (spec_.head_dim_qk + spec_.head_dim_v);
  }

 private:
  std::vector<float>& Page(PageId page) {
    ATTN_CHECK(page >= 0 && page < num_pages(), "page ", page, " of ", num_pages());
    return pages_[static_cast<size_t>(page)];
  }

  const AttentionSpec spec_;
  std::vector<std::vector<float>> pages_;  // empty: no memory
  FakeDevice* device_;
};

bool IsVisible(const AttentionSpec& spec, const AttendEntry& entry, int64_t position, int64_t key) {
  const WindowSpec& window = spec.score.window;
  if (entry.causal && key > position) return false;
  if (window.left.has_value() && key < position - *window.left) return false;
  return !window.right.has_value() || key <= position + *window.right;
}

void AttendRow(FakeStore& store, const AttendEntry& entry, int32_t row, uint32_t head) {
  const AttentionSpec& spec = store.spec();
  const uint32_t dim = spec.head_dim_qk;
  const uint32_t dim_v = spec.head_dim_v;
  const uint32_t kv_head = head / spec.group_size();
  const int64_t at = int64_t{row} * spec.num_q_heads + head;
  std::vector<double> logits;
  std::vector<const float*> values;
  for (int64_t key = 0; key < entry.kv_end; ++key) {
    if (!IsVisible(spec, entry, entry.q_start + row, key)) continue;
    const float* slot = store.Slot(entry.pages, entry.layer, key);
    double dot = 0;
    for (uint32_t d = 0; d < dim; ++d) {
      dot += double{LoadAsFloat(spec.activation_dtype, entry.q, at * dim + d)} *
             slot[kv_head * dim + d];
    }
    logits.push_back(dot * spec.score.softmax_scale);
    values.push_back(slot + spec.num_kv_heads * dim + kv_head * dim_v);
  }
  std::vector<double> all = logits;
  if (entry.use_sinks) {
    const uint32_t sinks = spec.score.sink_logits_per_head;
    for (uint32_t i = 0; i < sinks; ++i) {
      const size_t index = (size_t{entry.layer} * spec.num_q_heads + head) * sinks + i;
      all.push_back(spec.score.sink_logits[index]);
    }
  }
  const double largest = all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  double sum = 0;
  for (const double logit : all) sum += std::exp(logit - largest);
  for (uint32_t d = 0; d < dim_v; ++d) {
    double out = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      out += std::exp(logits[i] - largest) / sum * values[i][d];
    }
    StoreFromFloat(entry.out_dtype, entry.out, at * dim_v + d, static_cast<float>(out));
  }
  if (entry.lse != nullptr) entry.lse[at] = static_cast<float>(largest + std::log(sum));
}

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(std::shared_ptr<FakeDevice> device) : device_(std::move(device)) {}

  std::string device_name() const override { return "fake"; }

  absl::Status Supports(const AttentionSpec& spec) const override {
    if (spec.score.logit_soft_cap == 0) return absl::OkStatus();
    return MakeError(Reason::kUnsupported, "logit_soft_cap", "got a soft cap, want 0");
  }

  int64_t PageBytes(const AttentionSpec& spec) const override {
    return int64_t{spec.num_layers} * spec.page_size * spec.num_kv_heads *
           (spec.head_dim_qk + spec.head_dim_v) * 4;
  }

  absl::StatusOr<std::unique_ptr<KvStore>> CreateKvStore(const AttentionSpec& spec,
                                                         const KvStoreOptions& options) override {
    return std::make_unique<FakeStore>(spec, options.num_pages, device_.get());
  }

  absl::StatusOr<Ticket> Launch(KvStore& kv_store, const Batch& batch) override {
    auto& store = static_cast<FakeStore&>(kv_store);
    device_->calls += 'L';
    if (device_->on_launch) device_->on_launch(batch);
    if (device_->keeps_records) device_->records.push_back(RecordOf(batch));
    if (!device_->next_launch_error.ok()) {
      return std::exchange(device_->next_launch_error, absl::OkStatus());
    }
    if (device_->works_in_background) {
      under_way_.push_back({&store, &batch});
      return Ticket{};
    }
    Do(store, batch);
    return Ticket{.is_done = true};
  }

  absl::Status Wait(Ticket) override {
    device_->calls += 'W';
    if (!under_way_.empty()) {
      Do(*under_way_.front().store, *under_way_.front().batch);
      under_way_.pop_front();
    }
    return std::exchange(device_->next_wait_error, absl::OkStatus());
  }

  // Visible pairs of causal rows are counted exactly, windows are not looked at.
  Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry) const override {
    const double rows = entry.q_len;
    double pairs = rows * entry.kv_end;
    if (entry.causal) {
      const double first = std::clamp<double>(double(entry.q_start) + 1, 0, entry.kv_end);
      const double last = std::clamp<double>(double(entry.q_start) + rows, 0, entry.kv_end);
      pairs = rows * (first + last) / 2;
    }
    const double heads = entry.kv_head_end - entry.kv_head_begin;
    const double dims = spec.head_dim_qk + spec.head_dim_v;
    return {.attend_flops = 2 * dims * pairs * heads * spec.group_size(),
            .moved_bytes = entry.kv_end * heads * dims * 4};
  }

  int32_t prefill_cut_rows() const override { return device_->cut_rows; }
  int64_t max_kv_len() const override { return device_->max_kv_len; }

 private:
  struct UnderWay {
    FakeStore* store;
    const Batch* batch;
  };

  void Do(FakeStore& store, const Batch& batch) {
    Spend(store.spec(), batch);
    if (device_->computes) Run(store, batch);
  }

  static LaunchRecord RecordOf(const Batch& batch) {
    LaunchRecord record;
    record.num_copies = batch.copies.size();
    for (const AppendEntry& append : batch.appends) record.append_counts.push_back(append.count);
    for (const AttendEntry& entry : batch.rows) {
      record.rows.push_back({entry.layer, entry.q_start, entry.q_len, entry.kv_end,
                             entry.kv_head_begin, entry.kv_head_end, entry.row_class});
    }
    return record;
  }

  void Spend(const AttentionSpec& spec, const Batch& batch) {
    if (device_->clock == nullptr) return;
    double nanos = 0;
    for (const AttendEntry& entry : batch.rows) {
      const Cost cost = CostOf(spec, entry);
      nanos +=
          cost.attend_flops * device_->nanos_per_flop + cost.moved_bytes * device_->nanos_per_byte;
    }
    for (const AppendEntry& append : batch.appends) {
      nanos += double{1} * append.count * spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_v) *
               8 * device_->nanos_per_byte;
    }
    device_->clock->Advance(static_cast<Nanos>(nanos));
  }

  static void Run(FakeStore& store, const Batch& batch) {
    const AttentionSpec& spec = store.spec();
    for (const PageCopy& copy : batch.copies) {
      for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
        std::copy_n(store.SlotOfPage(copy.source, layer, 0),
                    copy.slots_per_layer[layer] * store.slot_floats(),
                    store.SlotOfPage(copy.target, layer, 0));
      }
    }
    for (const AppendEntry& append : batch.appends) Append(store, append);
    for (const AttendEntry& entry : batch.rows) {
      for (int32_t row = 0; row < entry.q_len; ++row) {
        for (uint32_t head = entry.kv_head_begin * spec.group_size();
             head < entry.kv_head_end * spec.group_size(); ++head) {
          AttendRow(store, entry, row, head);
        }
      }
    }
  }

  static void Append(FakeStore& store, const AppendEntry& append) {
    const AttentionSpec& spec = store.spec();
    const int64_t k_row = int64_t{spec.num_kv_heads} * spec.head_dim_qk;
    const int64_t v_row = int64_t{spec.num_kv_heads} * spec.head_dim_v;
    for (uint32_t i = 0; i < append.count; ++i) {
      float* slot = store.Slot(append.pages, append.layer, int64_t{append.begin} + i);
      for (int64_t d = 0; d < k_row; ++d) {
        slot[d] =
            RoundTo(spec.kv_dtype, LoadAsFloat(spec.activation_dtype, append.k, i * k_row + d));
      }
      for (int64_t d = 0; d < v_row; ++d) {
        slot[k_row + d] =
            RoundTo(spec.kv_dtype, LoadAsFloat(spec.activation_dtype, append.v, i * v_row + d));
      }
    }
  }

  std::shared_ptr<FakeDevice> device_;
  std::deque<UnderWay> under_way_;
};

}  // namespace

std::unique_ptr<Backend> CreateFakeBackend(std::shared_ptr<FakeDevice> device) {
  return std::make_unique<FakeBackend>(std::move(device));
}

}  // namespace attn::test
