// The verification itself: its reference against hand-made rows, and that it sees what is wrong.
#include "tools/loadgen/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tools/loadgen/bit_flip.h"

namespace attn::loadgen {
namespace {

ModelPlan TinyModel(double soft_cap = 0, uint32_t windowed_layers = 0) {
  Options options;
  options.layers = 2;
  options.q_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 8;
  options.windowed_layers = windowed_layers;
  options.window = 3;
  options.sinks = 2;
  options.soft_cap = soft_cap;
  options.dtype = DType::kFloat32;
  return PlanModel(options);
}

TEST(RowReferenceTest, ARowThatSeesOneKeyGetsItsValueAndItsLogit) {
  const ModelPlan model = TinyModel();
  const std::vector<float> q(model.q_elements(), 2), k(model.kv_elements(), 3);
  std::vector<float> v(model.kv_elements());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  const ReferenceRow row =
      ComputeReferenceRow(model, model.layers[0], 0, q.data(), k.data(), v.data());
  EXPECT_NEAR(row.lse[0], 8 * 2 * 3 / std::sqrt(8.0), 1e-5);
  EXPECT_DOUBLE_EQ(row.out[0], 0);
  EXPECT_DOUBLE_EQ(row.out[8 + 1], 1) << "query head 1 reads KV head 0";
  EXPECT_DOUBLE_EQ(row.out[2 * 8 + 1], 9) << "query head 2 reads KV head 1";
}

TEST(RowReferenceTest, EqualKeysShareTheWeightAndSinksTakeTheirPart) {
  const ModelPlan model = TinyModel(0, 1);
  LayerRule rule = model.layers[1];
  rule.sinks.assign(8, 0.0f);
  const uint32_t position = 9;  // window 3: keys 7, 8, 9
  const std::vector<float> q(model.q_elements(), 1);
  const std::vector<float> k((position + 1) * model.kv_elements(), 0);
  std::vector<float> v(k.size(), 1000);
  for (size_t i = 7 * model.kv_elements(); i < v.size(); ++i) v[i] = 5;
  const ReferenceRow row = ComputeReferenceRow(model, rule, position, q.data(), k.data(), v.data());
  EXPECT_NEAR(row.out[0], 3 * 5.0 / 5, 1e-12);
  EXPECT_NEAR(row.lse[3], std::log(5.0), 1e-12);
}

TEST(RowReferenceTest, TheSoftCapBoundsLogits) {
  const ModelPlan model = TinyModel(5);
  const std::vector<float> q(model.q_elements(), 1e20f), k(model.kv_elements(), 1e15f),
      v(model.kv_elements(), 1);
  const ReferenceRow row =
      ComputeReferenceRow(model, model.layers[0], 0, q.data(), k.data(), v.data());
  EXPECT_NEAR(row.lse[0], 5, 1e-6);
}

TEST(RowReferenceTest, TheNaiveErrorIsThatOfRoundingOnlyWeightsAndResults) {
  ModelPlan model = TinyModel();
  const std::vector<float> q(model.q_elements(), 1), k(2 * model.kv_elements(), 0);
  std::vector<float> v(k.size(), 1);
  for (size_t i = model.kv_elements(); i < v.size(); ++i) v[i] = 1 + std::ldexp(1.0f, -7);
  const auto error = [&](DType dtype) {
    model.dtype = dtype;
    return ComputeReferenceRow(model, model.layers[0], 1, q.data(), k.data(), v.data()).naive_error;
  };
  EXPECT_EQ(error(DType::kBFloat16), std::ldexp(1.0, -8)) << "1 + 2^-8 becomes 1";
  EXPECT_EQ(error(DType::kFloat16), 0) << "1 + 2^-8 is exact";
  EXPECT_EQ(error(DType::kFloat32), 0);
}

TEST(TensorSourceTest, RowsRepeatDifferFromEachOtherAndStayInRange) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const TensorSource source(7, dtype), other_seed(8, dtype);
    const size_t elements = 36;
    std::set<std::string> rows;
    double sum = 0, squares = 0;
    for (const uint32_t position : {0u, 1u, 70000u}) {
      for (const auto kind : {TensorKind::kQuery, TensorKind::kKey, TensorKind::kValue}) {
        std::string row(elements * SizeOf(dtype), 'x'), again = row;
        source.Fill({3, 1, position}, kind, elements, row.data());
        source.Fill({3, 1, position}, kind, elements, again.data());
        EXPECT_EQ(row, again);
        rows.insert(row);
        for (size_t i = 0; i < elements; ++i) {
          const float value = LoadAsFloat(dtype, row.data(), static_cast<int64_t>(i));
          EXPECT_GE(std::abs(value), 0.125f);
          EXPECT_LT(std::abs(value), 2.0f);
          sum += value;
          squares += value * value;
        }
      }
    }
    std::string row(elements * SizeOf(dtype), 'x');
    other_seed.Fill({3, 1, 0}, TensorKind::kQuery, elements, row.data());
    rows.insert(row);
    EXPECT_EQ(rows.size(), 10u) << NameOf(dtype);
    const double n = 9.0 * static_cast<double>(elements);
    EXPECT_NEAR(sum / n, 0, 0.25);
    EXPECT_NEAR(squares / n, 0.77, 0.25);
  }
}

TEST(TensorSourceTest, TheSampledShareIsAsAskedFor) {
  const TensorSource source(7, DType::kFloat32);
  int sampled = 0;
  for (uint32_t position = 0; position < 100'000; ++position) {
    sampled += source.IsSampled({1, 2, position}, 0.01) ? 1 : 0;
  }
  EXPECT_NEAR(sampled, 1000, 160);
  EXPECT_TRUE(source.IsSampled({1, 2, 3}, 1.0));
  EXPECT_FALSE(source.IsSampled({1, 2, 3}, 0.0));
}

class VerifierTest : public testing::Test {
 protected:
  // The right answer for a row, in the model's dtype.
  SampledRow RightRow(const RowId& id) const {
    const auto load = [&](const RowId& row, TensorKind kind, size_t elements) {
      std::vector<float> values(elements);
      source_.Fill(row, kind, elements, values.data());  // the dtype is float32
      return values;
    };
    std::vector<float> k, v;
    RowId row_id = id;
    for (row_id.position = 0; row_id.position <= id.position; ++row_id.position) {
      for (auto [kind, all] : {std::pair{TensorKind::kKey, &k}, {TensorKind::kValue, &v}}) {
        const auto values = load(row_id, kind, model_.kv_elements());
        all->insert(all->end(), values.begin(), values.end());
      }
    }
    const auto q = load(id, TensorKind::kQuery, model_.q_elements());
    const ReferenceRow row = ComputeReferenceRow(model_, model_.layers[id.layer], id.position,
                                                 q.data(), k.data(), v.data());
    SampledRow sample;
    sample.row = id;
    sample.out.resize(row.out.size() * sizeof(float));
    for (size_t i = 0; i < row.out.size(); ++i) {
      StoreFromFloat(DType::kFloat32, sample.out.data(), static_cast<int64_t>(i),
                     static_cast<float>(row.out[i]));
    }
    for (const double lse : row.lse) sample.lse.push_back(static_cast<float>(lse));
    return sample;
  }

  VerifyReport Check(std::vector<SampledRow> rows) {
    Verifier verifier(&model_, &source_);
    for (SampledRow& row : rows) verifier.Keep(std::move(row));
    return verifier.Check(2);
  }

  const ModelPlan model_ = TinyModel(0, 1);
  const TensorSource source_{5, DType::kFloat32};
};

TEST_F(VerifierTest, RightRowsPass) {
  const VerifyReport report =
      Check({RightRow({2, 1, 17}), RightRow({0, 0, 0}), RightRow({2, 1, 3}), RightRow({1, 0, 40})});
  EXPECT_EQ(report.rows, 4u);
  EXPECT_EQ(report.mismatches, 0u) << report.first_mismatch;
  EXPECT_LT(report.worst, 0.2);
}

TEST_F(VerifierTest, EveryWrongRowIsCountedAndTheFirstOneNamed) {
  SampledRow small = RightRow({2, 1, 17}), nan = RightRow({2, 1, 18}), lse = RightRow({3, 0, 5}),
             missing = RightRow({4, 0, 9});
  const float value = LoadAsFloat(DType::kFloat32, small.out.data(), 6);
  StoreFromFloat(DType::kFloat32, small.out.data(), 6, value + 1e-3f);
  StoreFromFloat(DType::kFloat32, nan.out.data(), 0, std::numeric_limits<float>::quiet_NaN());
  lse.lse[2] += 1e-3f;
  missing.out.clear();
  const VerifyReport report = Check({small, nan, lse, missing, RightRow({5, 0, 5})});
  EXPECT_EQ(report.rows, 5u);
  EXPECT_EQ(report.mismatches, 4u);
  EXPECT_THAT(report.first_mismatch, testing::HasSubstr("sequence 2, layer 1, position 17"));
}

TEST_F(VerifierTest, ARowOfAnotherPositionIsWrong) {
  SampledRow row = RightRow({2, 0, 17});
  row.row.position = 16;
  EXPECT_EQ(Check({row}).mismatches, 1u);
}

TEST(BitFlipTest, OneTopExponentBitOfOneKeyElementChangesAndOnlyOnce) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    ModelPlan model = TinyModel();
    model.dtype = dtype;
    const TensorSource source(11, dtype);
    std::string q(model.q_elements() * SizeOf(dtype), 0);
    std::string k(model.kv_elements() * SizeOf(dtype), 0);
    source.Fill({0, 0, 9}, TensorKind::kQuery, model.q_elements(), q.data());
    source.Fill({0, 0, 9}, TensorKind::kKey, model.kv_elements(), k.data());
    BitFlipper flipper;
    std::string flipped = k;
    ASSERT_TRUE(flipper.Flip(model, q.data(), flipped.data()));
    int changed = 0;
    for (size_t i = 0; i < k.size(); ++i) {
      const int difference = (k[i] ^ flipped[i]) & 0xff;
      if (difference == 0) continue;
      ++changed;
      EXPECT_EQ(difference, 0x40);
      EXPECT_EQ(i % SizeOf(dtype), SizeOf(dtype) - 1);
    }
    EXPECT_EQ(changed, 1) << NameOf(dtype);
    EXPECT_FALSE(flipper.Flip(model, q.data(), k.data()));
    EXPECT_TRUE(flipper.is_done());
  }
}

}  // namespace
}  // namespace attn::loadgen
