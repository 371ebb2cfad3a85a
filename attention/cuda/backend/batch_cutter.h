// Cuts a batch into steps that fit the staging memory, in the order copies, appends, rows. Where
// the cuts fall changes no bit: tokens are moved one by one, and a row's bits do not depend on the
// rows beside it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "attention/cuda/entry_record.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn::cuda {

struct StepLimits {
  int64_t upload_bytes = 0;
  int64_t output_bytes = 0;
  int64_t workspace_bytes = 0;
  int num_sms = 1;
};

// The first pages of a list; all pieces of a step that read the list share it.
struct PageTable {
  PageList pages;
  int32_t num_pages = 0;
};

// Units [first, first + count) of an entry of the batch: tokens of an append, or query rows.
struct Piece {
  size_t entry = 0;
  int32_t first = 0;
  int32_t count = 0;
  size_t table = 0;  // of the step
};

struct StepPieces {
  size_t first_copy = 0;
  size_t num_copies = 0;
  std::vector<PageTable> tables;
  std::vector<Piece> appends;
  std::vector<Piece> rows;
};

class BatchCutter {
 public:
  explicit BatchCutter(const StepLimits& limits) : limits_(limits) {}

  // TOO_LARGE, naming the field, if a single copy, token or row does not fit. The steps are valid
  // until the next call; none if there is nothing to do.
  absl::Status Cut(const AttentionSpec& spec, const LaunchScore& score, const Batch& batch);
  size_t num_steps() const { return num_steps_; }
  const StepPieces& step(size_t index) const { return steps_[index]; }

 private:
  struct Bytes {
    int64_t upload = 0;
    int64_t output = 0;
    int64_t workspace = 0;
  };
  // At most what the first unit (copy, token, row) of an entry costs besides, and what each costs.
  struct Price {
    Bytes fixed;
    Bytes unit;
  };

  Price PriceOf(const AttendEntry& entry) const;
  int32_t PagesFor(int64_t tokens) const;
  int64_t QueryRowBytes() const;

  absl::Status CutCopies(size_t num_copies);
  absl::Status CutAppends(const std::vector<AppendEntry>& entries);
  absl::Status CutRows(const std::vector<AttendEntry>& entries);
  // Adds units [0, wanted) of an entry to the list of this step and, where they do not fit, of new
  // steps. Only the last piece may have a number of units that `whole` does not divide, unless not
  // even so many fit.
  absl::Status Add(std::vector<Piece> StepPieces::*list, const char* field, size_t entry,
                   int32_t wanted, int32_t whole, const PageList& pages, int32_t num_pages,
                   Price price);
  // Units that fit beside what the step holds.
  int64_t Fitting(const Price& price) const;
  void Spend(const Price& price, int64_t units);
  StepPieces& NewStep();
  bool HasTable(const PageList& pages, int32_t num_pages) const;
  size_t TableFor(const PageList& pages, int32_t num_pages);

  const StepLimits limits_;
  const AttentionSpec* spec_ = nullptr;
  const LaunchScore* score_ = nullptr;
  std::vector<StepPieces> steps_;  // those behind num_steps_ keep their memory
  size_t num_steps_ = 0;
  Bytes left_;                                                  // of the last step
  absl::flat_hash_map<const PageId* const*, size_t> table_of_;  // of the last step
};

}  // namespace attn::cuda
