// Calls and expectations for engine tests.
#include "tests/server/engine_fixture.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace attn::server {
namespace {

// K is the same in every element, so a row of ones has the logit kDim * scale * key.
float KeyOf(int token) { return 0.125f * static_cast<float>(token % 7); }
float ValueOf(int token) { return static_cast<float>(token); }
constexpr float kScale = 0.5f;

void AppendFloats(std::string& bytes, float value, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

uint64_t TokenOf(const EngineFixture::Item& item) {
  uint64_t hash = item.seq * 31 + item.layer * 7 + item.expected_len;
  for (const int token : item.tokens) hash = hash * 1000003 + static_cast<uint64_t>(token);
  return hash | 1;
}

}  // namespace

ModelDefinition FixtureModel(const FixtureOptions& options, const std::string& name) {
  ModelDefinition definition;
  definition.name = name;
  definition.num_layers = options.num_layers;
  definition.page_size = options.page_size;
  definition.fingerprint = std::string(32, 'f');
  definition.groups.resize(options.num_groups);
  for (uint32_t layer = 0; layer < options.num_layers; ++layer) {
    definition.groups[layer % options.num_groups].layers.push_back(layer);
  }
  for (ModelGroup& group : definition.groups) {
    group.spec.num_layers = static_cast<uint32_t>(group.layers.size());
    group.spec.num_q_heads = options.num_heads;
    group.spec.num_kv_heads = options.num_heads;
    group.spec.head_dim_qk = EngineFixture::kDim;
    group.spec.head_dim_v = EngineFixture::kDim;
    group.spec.page_size = options.page_size;
    group.spec.score.softmax_scale = kScale;
  }
  return definition;
}

EngineFixture::EngineFixture(FixtureOptions fixture_options)
    : device(std::make_shared<test::FakeDevice>()), options(fixture_options) {
  device->clock = &clock;
  engine = std::make_unique<Engine>(options.engine, test::CreateFakeBackend(device), &registry,
                                    &clock, options.observer);
  const Call& declared = Run(Make(DeclareModelCall{FixtureModel(options, "model")}));
  EXPECT_TRUE(declared.status.ok()) << declared.status;
  model = registry.FindByName("model");
}

std::unique_ptr<Call> EngineFixture::Make(Request request, std::shared_ptr<StreamScope> stream) {
  auto call = std::make_unique<Call>();
  call->id = next_id_++;
  call->request = std::move(request);
  call->stream = std::move(stream);
  call->arrival = clock.Now();
  call->sink = &sink;
  return call;
}

std::unique_ptr<Call> EngineFixture::Attend(const std::vector<Item>& items,
                                            std::shared_ptr<StreamScope> stream) {
  AttendCall request;
  request.num_q_heads = options.num_heads;
  request.num_kv_heads = options.num_heads;
  request.head_dim_qk = kDim;
  request.head_dim_v = kDim;
  request.return_lse = true;
  const size_t row = size_t{kDim} * options.num_heads;
  int64_t kv_row = 0;
  for (const Item& item : items) {
    AttendItem out;
    out.sequence.value = item.seq;
    out.layer = item.layer;
    out.expected_len = item.expected_len;
    out.q_len = item.q_len;
    out.kv_new_len = static_cast<uint32_t>(item.tokens.size());
    out.flags = item.flags;
    out.append_token = item.append_token != 0 ? item.append_token : TokenOf(item);
    out.q_start = item.q_start;
    out.q_row = request.total_q;
    out.kv_row = kv_row;
    out.model = model;
    request.items.push_back(out);
    request.total_q += item.q_len;
    kv_row += out.kv_new_len;
    AppendFloats(request.q, 1.0f, row * item.q_len);
    for (const int token : item.tokens) {
      AppendFloats(request.k, KeyOf(token), row);
      AppendFloats(request.v, ValueOf(token), row);
    }
  }
  return Make(std::move(request), std::move(stream));
}

uint64_t EngineFixture::Push(std::unique_ptr<Call> call) {
  const uint64_t id = call->id;
  const absl::Status pushed = engine->queue().Push(std::move(call));
  EXPECT_TRUE(pushed.ok()) << pushed;
  return id;
}

void EngineFixture::Drain() {
  for (int step = 0; engine->StepByHand(); ++step) ASSERT_LT(step, 100000);
}

const Call& EngineFixture::Run(std::unique_ptr<Call> call) {
  const uint64_t id = Push(std::move(call));
  Drain();
  const Call* answer = sink.Find(id);
  EXPECT_NE(answer, nullptr);
  return *answer;
}

const AttendResult& EngineFixture::RunAttend(const std::vector<Item>& items) {
  return std::get<AttendResult>(Run(Attend(items)).result);
}

const AttendResult& EngineFixture::AttendAnswer(uint64_t id) const {
  const Call* answer = sink.Find(id);
  if (answer == nullptr) {
    ADD_FAILURE() << "call " << id << " has no answer";
    static const AttendResult none;
    return none;
  }
  return std::get<AttendResult>(answer->result);
}

uint64_t EngineFixture::Open(const std::string& owner, Nanos lease) {
  OpenCall open;
  open.model = model;
  open.owner = owner;
  open.lease = lease;
  open.items.resize(1);
  const Call& answer = Run(Make(std::move(open)));
  return std::get<OpenResult>(answer.result).items[0].value().value;
}

uint32_t EngineFixture::LengthOf(uint64_t sequence, uint32_t layer) {
  return engine->cache_for_test().LengthOf(SequenceId(sequence), layer);
}

float EngineFixture::ExpectedOut(const std::vector<int>& tokens) {
  if (tokens.empty()) return 0;
  double sum = 0;
  double out = 0;
  for (const int token : tokens) {
    const double weight = std::exp(double{kScale} * kDim * KeyOf(token));
    sum += weight;
    out += weight * ValueOf(token);
  }
  return static_cast<float>(out / sum);
}

float EngineFixture::OutRow(const Call& call, int64_t row) const {
  const std::string& out = std::get<AttendResult>(call.result).out;
  float value = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&value, out.data() + row * options.num_heads * kDim * 4, sizeof(value));
  return value;
}

}  // namespace attn::server
