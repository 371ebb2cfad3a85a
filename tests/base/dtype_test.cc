// Are the 16-bit conversions right for every pattern? The judge decodes a pattern by its fields in
// double precision and finds the nearest pattern by searching the sorted list of all values; it
// shares no bit trick with the code.
#include "attn/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random.h"

namespace attn {
namespace {

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  float (*decode)(uint16_t);
  uint16_t (*encode)(float);
};

const Format kFormats[] = {
    {"bfloat16", 8, 7, [](uint16_t bits) { return Bf16ToFloat(bits); },
     [](float value) { return FloatToBf16(value); }},
    {"float16", 5, 10, &Fp16ToFloat, &FloatToFp16},
};

// The value of a pattern from its sign, exponent and mantissa.
double ValueOf(const Format& format, uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign *
         std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
}

// All finite values that are not negative, by pattern, plus the one where infinity begins: what
// the next value would be if the format had another exponent.
std::vector<double> MagnitudesOf(const Format& format) {
  std::vector<double> values;
  for (uint32_t bits = 0; std::isfinite(ValueOf(format, static_cast<uint16_t>(bits))); ++bits) {
    values.push_back(ValueOf(format, static_cast<uint16_t>(bits)));
  }
  values.push_back(2 * values.back() - values[values.size() - 2]);
  return values;
}

// Nearest pattern, ties to the even one. The last entry of `magnitudes` stands for infinity, whose
// pattern follows that of the largest finite value.
uint16_t NearestPattern(const std::vector<double>& magnitudes, float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.end()) return static_cast<uint16_t>(sign | (magnitudes.size() - 1));
  const size_t high = static_cast<size_t>(above - magnitudes.begin());
  if (high == 0 || *above == magnitude) return static_cast<uint16_t>(sign | high);
  const double to_low = magnitude - magnitudes[high - 1];
  const double to_high = magnitudes[high] - magnitude;
  const bool takes_low = to_low < to_high || (to_low == to_high && (high - 1) % 2 == 0);
  return static_cast<uint16_t>(sign | (takes_low ? high - 1 : high));
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST(DTypeTest, EveryPatternDecodesToTheValueOfItsFields) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const uint16_t pattern = static_cast<uint16_t>(bits);
      const float decoded = format.decode(pattern);
      const double value = ValueOf(format, pattern);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(decoded)) << format.name << " " << bits;
      } else {
        ASSERT_TRUE(SameBits(decoded, static_cast<float>(value))) << format.name << " " << bits;
      }
    }
  }
}

TEST(DTypeTest, EveryPatternSurvivesTheWayThroughFloat) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const uint16_t pattern = static_cast<uint16_t>(bits);
      const uint16_t back = format.encode(format.decode(pattern));
      if (std::isnan(ValueOf(format, pattern))) {
        ASSERT_TRUE(std::isnan(ValueOf(format, back))) << format.name << " " << bits;
        ASSERT_EQ(back & 0x8000, pattern & 0x8000) << format.name << " " << bits;
      } else {
        ASSERT_EQ(back, pattern) << format.name << " " << bits;
      }
    }
  }
}

TEST(DTypeTest, MidpointsAndTheirNeighboursRoundToNearestEven) {
  for (const Format& format : kFormats) {
    const std::vector<double> magnitudes = MagnitudesOf(format);
    for (size_t i = 0; i + 1 < magnitudes.size(); ++i) {
      // A midpoint needs one bit more than the format has: a float holds it exactly.
      const double midpoint = (magnitudes[i] + magnitudes[i + 1]) / 2;
      const float middle = static_cast<float>(midpoint);
      ASSERT_EQ(static_cast<double>(middle), midpoint);
      for (const float value : {middle, std::nextafter(middle, 0.0f),
                                std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
        ASSERT_EQ(format.encode(value), NearestPattern(magnitudes, value)) << format.name << value;
        ASSERT_EQ(format.encode(-value), NearestPattern(magnitudes, -value))
            << format.name << value;
      }
    }
  }
}

TEST(DTypeTest, RandomFloatsOfAllExponentsRoundToNearestEven) {
  test::Random random(20240611);
  for (const Format& format : kFormats) {
    const std::vector<double> magnitudes = MagnitudesOf(format);
    for (int i = 0; i < 500'000; ++i) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
      if (std::isnan(value)) continue;
      ASSERT_EQ(format.encode(value), NearestPattern(magnitudes, value))
          << format.name << " " << std::bit_cast<uint32_t>(value);
    }
  }
}

TEST(DTypeTest, ANanStaysAQuietNanOfItsSignWhateverItsPayload) {
  for (const Format& format : kFormats) {
    const uint16_t quiet_bit = static_cast<uint16_t>(1u << (format.mantissa_bits - 1));
    for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f80ffffu, 0xff800001u,
                                0xffffffffu, 0xffc12345u}) {
      const uint16_t encoded = format.encode(std::bit_cast<float>(bits));
      EXPECT_TRUE(std::isnan(ValueOf(format, encoded))) << format.name << " " << bits;
      EXPECT_NE(encoded & quiet_bit, 0) << format.name << " " << bits;
      EXPECT_EQ(encoded >> 15, bits >> 31) << format.name << " " << bits;
    }
  }
}

TEST(DTypeTest, HalfPrecisionOverflowsToInfinityFromHalfAStepAboveItsMaximum) {
  EXPECT_EQ(FloatToFp16(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToFp16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToFp16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFp16(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToFp16(std::numeric_limits<float>::infinity()), 0x7c00);
}

TEST(DTypeTest, LoadAndStoreWorkAtAnyAddressAndTouchOnlyTheirElement) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (int offset = 0; offset < 4; ++offset) {
      std::vector<unsigned char> bytes(64, 0xee);
      StoreFromFloat(dtype, bytes.data() + offset, 3, -1.5f);
      EXPECT_EQ(LoadAsFloat(dtype, bytes.data() + offset, 3), -1.5f);
      const size_t begin = static_cast<size_t>(offset) + 3 * SizeOf(dtype);
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (i < begin || i >= begin + SizeOf(dtype)) {
          EXPECT_EQ(bytes[i], 0xee) << i;
        }
      }
    }
  }
}

TEST(DTypeTest, RoundToGivesWhatIsReadBackAfterAStore) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const float value : {0.0f, -0.0f, 1.0f, 0.1f, 3.14159265f, 70000.0f, 1e-7f, -1e38f}) {
      float stored = 0;
      StoreFromFloat(dtype, &stored, 0, value);
      EXPECT_TRUE(SameBits(RoundTo(dtype, value), LoadAsFloat(dtype, &stored, 0)))
          << NameOf(dtype) << " " << value;
    }
  }
  EXPECT_EQ(RoundTo(DType::kFloat32, 0.1f), 0.1f);
  EXPECT_EQ(RoundTo(DType::kBFloat16, 0.1f), 0.10009765625f);
  EXPECT_EQ(RoundTo(DType::kFloat16, 0.1f), 0.0999755859375f);
}

TEST(DTypeTest, NamesAndSizesAreThoseOfTheDocuments) {
  EXPECT_EQ(NameOf(DType::kFloat32), "float32");
  EXPECT_EQ(NameOf(DType::kFloat16), "float16");
  EXPECT_EQ(NameOf(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(SizeOf(DType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DType::kFloat16), 2u);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2u);
}

}  // namespace
}  // namespace attn
