// Calls that each use one feature of the wire, and what a server on the CPU backend says to them.
#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.grpc.pb.h"
#include "tests/e2e/test_server.h"
#include "tests/support_doc/markdown.h"
#include "tests/support_doc/sections.h"

namespace attn::test {
namespace {

std::string Cell(const v1::Status& status) {
  if (status.code() == grpc::StatusCode::OK) return "done";
  const std::string code = status.code() == grpc::StatusCode::UNIMPLEMENTED
                               ? "refused"
                               : absl::StrCat("refused (code ", status.code(), ")");
  return absl::StrCat(code, ": `", status.field(), "`");
}

// The refusal of a call, or else of its first item that failed.
template <typename Response>
v1::Status Outcome(const grpc::Status& status, const Response& response) {
  if (!status.ok()) return DetailOf(status);
  return response.errors_size() > 0 ? response.errors(0).status() : v1::Status();
}

// A server with a sequence that holds 8 tokens in both of its layers.
class Caller {
 public:
  Caller() : sequence_(server_.OpenOne()) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) server_.Attend(AppendRequest(layer, 0, 8));
  }

  v1::AttendRequest ReadRequest() {
    return MakeRequest({{.sequence = sequence_, .q = RandomRows(random_, 2, kQHeads)}});
  }

  v1::AttendRequest AppendRequest(uint32_t layer, uint32_t expected_len, int64_t count) {
    PlainLayer ignored;
    Step step = AppendStep(random_, sequence_, layer, count, &ignored);
    step.expected_len = expected_len;
    return MakeRequest({step});
  }

  v1::Status Attend(const v1::AttendRequest& request) {
    v1::AttendResponse response;
    grpc::ClientContext context;
    return Outcome(server_.stubs().attention->Attend(&context, request, &response), response);
  }

  v1::Status Compute(const v1::ComputeRequest& request) {
    v1::ComputeResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server_.stubs().attention->Compute(&context, request, &response);
    return status.ok() ? v1::Status() : DetailOf(status);
  }

  v1::Status Declare(v1::ModelSpec spec) {
    spec.set_name(absl::StrCat("model-", num_models_++));
    v1::DeclareModelRequest request;
    *request.mutable_spec() = std::move(spec);
    v1::DeclareModelResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server_.stubs().models->DeclareModel(&context, request, &response);
    return status.ok() ? v1::Status() : DetailOf(status);
  }

  v1::Status Fork() {
    v1::ForkSequencesRequest request;
    request.add_items()->set_parent_id(sequence_);
    request.mutable_items(0)->set_num_children(2);
    request.set_request_key(random_.Next() | 1);
    v1::ForkSequencesResponse response;
    grpc::ClientContext context;
    return Outcome(server_.stubs().sequences->ForkSequences(&context, request, &response),
                   response);
  }

  v1::Status Reorder() {
    v1::ReorderSequencesRequest request;
    request.add_targets(server_.OpenOne());
    request.add_sources(sequence_);
    request.set_request_key(random_.Next() | 1);
    v1::ReorderSequencesResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        server_.stubs().sequences->ReorderSequences(&context, request, &response);
    return status.ok() ? v1::Status() : DetailOf(status);
  }

  v1::Status Truncate(bool keeps_rows) {
    v1::TruncateSequencesRequest request;
    v1::TruncateSequencesRequest::Item* const item = request.add_items();
    item->set_sequence_id(sequence_);
    item->set_len(8);
    if (keeps_rows) item->add_keep_rows(1);
    request.set_request_key(random_.Next() | 1);
    v1::TruncateSequencesResponse response;
    grpc::ClientContext context;
    return Outcome(server_.stubs().sequences->TruncateSequences(&context, request, &response),
                   response);
  }

 private:
  Random random_{1};
  int num_models_ = 0;
  TestServer server_;
  uint64_t sequence_;
};

struct WireProbe {
  const char* feature;
  std::function<v1::Status(Caller&)> call;
};

// A read-only item with one thing changed.
WireProbe Read(const char* feature, void (*change)(v1::AttendRequest&)) {
  return {feature, [change](Caller& caller) {
            v1::AttendRequest request = caller.ReadRequest();
            change(request);
            return caller.Attend(request);
          }};
}

// An append behind what is there, with one thing changed; taken back afterwards.
WireProbe Append(const char* feature, void (*change)(v1::AttendRequest&)) {
  return {feature, [change](Caller& caller) {
            v1::AttendRequest request = caller.AppendRequest(0, 8, 2);
            change(request);
            const v1::Status status = caller.Attend(request);
            caller.Truncate(false);
            return status;
          }};
}

// A model with one thing changed.
WireProbe Model(const char* feature, void (*change)(v1::ModelSpec&)) {
  return {feature, [change](Caller& caller) {
            v1::ModelSpec spec = TinySpec();
            change(spec);
            return caller.Declare(spec);
          }};
}

std::vector<WireProbe> ModelProbes() {
  using v1::ModelSpec;
  return {
      Model("two layer groups, one with window and sinks", [](ModelSpec&) {}),
      Model("`page_size` left to the server", [](ModelSpec& s) { s.clear_page_size(); }),
      Model("8-bit cache, FLOAT8_E4M3",
            [](ModelSpec& s) { s.set_kv_dtype(v1::DATA_TYPE_FLOAT8_E4M3); }),
      Model("8-bit cache, INT8", [](ModelSpec& s) { s.set_kv_dtype(v1::DATA_TYPE_INT8); }),
      Model("float64", [](ModelSpec& s) { s.set_activation_dtype(v1::DATA_TYPE_FLOAT64); }),
      Model("ALiBi",
            [](ModelSpec& s) {
              for (uint32_t h = 0; h < kQHeads; ++h) {
                s.mutable_layer_groups(0)->add_alibi_slopes(0.5f);
              }
            }),
      Model("layers that share K and V",
            [](ModelSpec& s) { s.mutable_layer_groups(0)->add_kv_source_layers(0); }),
      Model("a prefix that stays visible behind the window",
            [](ModelSpec& s) {
              s.mutable_layer_groups(1)->mutable_window()->set_always_visible_prefix(4);
            }),
      Model("chunked-local window",
            [](ModelSpec& s) { s.mutable_layer_groups(1)->mutable_window()->set_chunk_len(64); }),
      Model("`window_slack`", [](ModelSpec& s) { s.mutable_layer_groups(1)->set_window_slack(8); }),
  };
}

std::vector<WireProbe> AttendProbes() {
  using v1::AttendRequest;
  return {
      Append("append and attend", [](AttendRequest&) {}),
      Append("append only", [](AttendRequest& r) { r.set_q_lens(0, 0), r.clear_q(); }),
      Append("attend, then append (APPEND_AFTER)",
             [](AttendRequest& r) { r.set_flags(0, v1::ITEM_FLAG_APPEND_AFTER); }),
      Append("cut back, then append (REWIND)",
             [](AttendRequest& r) {
               r.set_flags(0, v1::ITEM_FLAG_REWIND);
               r.set_expected_lens(0, 5);
             }),
      Read("read only", [](AttendRequest&) {}),
      Read("bidirectional (NON_CAUSAL)",
           [](AttendRequest& r) { r.set_flags(0, v1::ITEM_FLAG_NON_CAUSAL); }),
      Read("sink logits left out (NO_SINK_LOGITS)",
           [](AttendRequest& r) { r.set_flags(0, v1::ITEM_FLAG_NO_SINK_LOGITS); }),
      Read("log-sum-exp", [](AttendRequest& r) { r.set_return_lse(true); }),
      Read("output in another dtype",
           [](AttendRequest& r) { r.set_out_dtype(v1::DATA_TYPE_BFLOAT16); }),
      Read("rows anywhere (`q_starts`)", [](AttendRequest& r) { r.add_q_starts(100); }),
      Read("priority", [](AttendRequest& r) { r.set_priority(v1::PRIORITY_INTERACTIVE); }),
      Read("keys from a position on", [](AttendRequest& r) { r.add_kv_begins(2); }),
      Read("keys up to a position", [](AttendRequest& r) { r.add_kv_ends(6); }),
      Read("key end of each row (prefix-LM)",
           [](AttendRequest& r) { r.add_row_kv_ends(8), r.add_row_kv_ends(8); }),
      Read("mask of the last keys (draft trees)",
           [](AttendRequest& r) { r.add_mask_tail_lens(2); }),
      Read("mask bits alone",
           [](AttendRequest& r) { r.mutable_mask()->set_dtype(v1::DATA_TYPE_BIT); }),
      Read("a flag that is not known", [](AttendRequest& r) { r.set_flags(0, 1u << 20); }),
      Read(
          "a field that is not known",
          [](AttendRequest& r) { r.GetReflection()->MutableUnknownFields(&r)->AddVarint(999, 1); }),
      Read("q in shared memory or on a device (another data slot)",
           [](AttendRequest& r) {
             v1::Tensor* const q = r.mutable_q();
             q->clear_raw();
             q->GetReflection()->MutableUnknownFields(q)->AddLengthDelimited(8, "region");
           }),
  };
}

std::vector<WireProbe> OtherProbes() {
  return {
      {"fork", [](Caller& caller) { return caller.Fork(); }},
      {"reorder of beams", [](Caller& caller) { return caller.Reorder(); }},
      {"truncate", [](Caller& caller) { return caller.Truncate(false); }},
      {"truncate that keeps rows of a tree", [](Caller& caller) { return caller.Truncate(true); }},
      {"attention without a cache (Compute)", [](Caller& caller) { return caller.Compute({}); }},
  };
}

std::string Table(const char* about, Caller& caller, const std::vector<WireProbe>& probes) {
  std::string table = absl::StrCat("\n", TableHead({about, "answer"}));
  for (const WireProbe& probe : probes) {
    table += TableRow({probe.feature, Cell(probe.call(caller))});
  }
  return table;
}

}  // namespace

std::string WireSection() {
  Caller caller;
  return absl::StrCat(
      "## Features of the wire\n\n"
      "Answers of a server on the CPU backend to calls that each use one feature. What is refused "
      "is UNIMPLEMENTED and names the field; a field inside a list has its index.\n",
      Table("model", caller, ModelProbes()), Table("attend", caller, AttendProbes()),
      Table("other calls", caller, OtherProbes()));
}

}  // namespace attn::test
