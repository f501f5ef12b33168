// Number formats, and what each operation must give: the oracle of the native checker.
//
// Nothing here comes from hw/ or model/. The host's own floating-point unit does every sum and
// every rounding; only the fields of the formats are taken apart and put together by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

using Bits = uint64_t;

inline double double_of(Bits bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline Bits bits_of(double value) {
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(Bits bits) {
    uint32_t low = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &low, sizeof value);
    return value;
}

inline Bits bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Fields of a format, and its canonical NaN. Without infinities, the highest exponent holds
// numbers and a NaN has all ones. A format that saturates turns what overflows, infinities
// included, into the largest finite number. One that flushes takes a subnormal for zero.
template <int EXPONENT, int MANTISSA, Bits NAN_BITS, bool INFINITIES = true, bool SATURATES = false,
          bool FLUSHES = false>
struct Format {
    static constexpr int exponent_bits = EXPONENT, mantissa_bits = MANTISSA;
    static constexpr int bits = 1 + exponent_bits + mantissa_bits;
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1, emin = 1 - bias;
    static constexpr bool infinities = INFINITIES, saturates = SATURATES, flushes = FLUSHES;
    static constexpr Bits nan = NAN_BITS;
    static constexpr Bits sign = Bits(1) << (bits - 1);
    static constexpr Bits fraction = (Bits(1) << mantissa_bits) - 1;
    static constexpr Bits max_field = (Bits(1) << exponent_bits) - 1;
    static constexpr Bits infinity = max_field << mantissa_bits;
    static constexpr Bits largest = infinities ? infinity - 1 : sign - 2;
};

using BF16 = Format<8, 7, 0x7fff>;
using F16 = Format<5, 10, 0x7fff>;
using F32 = Format<8, 23, 0x7fffffff>;
using F32_FTZ = Format<8, 23, 0x7fffffff, true, false, true>;
using F64 = Format<11, 52, 0x7ff8000000000000>;
using E4M3 = Format<4, 3, 0x7f, false, true>;
using E5M2 = Format<5, 2, 0x7f, true, true>;

template <class F> bool is_nan(Bits bits) {
    Bits magnitude = bits & (F::sign - 1);
    return F::infinities ? magnitude > F::infinity : magnitude == F::sign - 1;
}

// The number that a pattern of a short format stands for.
template <class F> double plain_number(Bits bits) {
    Bits magnitude = bits & (F::sign - 1), field = magnitude >> F::mantissa_bits;
    double sign = bits & F::sign ? -1 : 1;
    if (is_nan<F>(bits)) return std::numeric_limits<double>::quiet_NaN();
    if (F::infinities && magnitude == F::infinity)
        return sign * std::numeric_limits<double>::infinity();
    Bits significand = (magnitude & F::fraction) | Bits(field != 0) << F::mantissa_bits;
    int exponent = static_cast<int>(field ? field : 1) - F::bias - F::mantissa_bits;
    return sign * std::ldexp(static_cast<double>(significand), exponent);
}

template <class F> std::vector<double> all_numbers() {
    std::vector<double> numbers(size_t(1) << F::bits);
    for (size_t bits = 0; bits < numbers.size(); ++bits) numbers[bits] = plain_number<F>(bits);
    return numbers;
}

template <class F> const std::vector<double> numbers_of = all_numbers<F>();

template <class F> float flushed(float value) {
    bool is_subnormal = std::fabs(value) < std::numeric_limits<float>::min();
    return F::flushes && is_subnormal ? std::copysign(0.0f, value) : value;
}

// The same, fast: by table for the short formats, by the host for the long ones.
template <class F> double number(Bits bits) {
    if constexpr (F::bits <= 16) return numbers_of<F>[bits];
    else if constexpr (F::bits == 32) return flushed<F>(float_of(bits));
    else return double_of(bits);
}

// The nearest number of a short format, ties to even. 1.5 * 2^52 units of the last place have no
// room for less than a unit, so that adding them makes the host round there, and taking them away
// again is exact. No branch, so that the compiler does several at once.
template <class F> Bits nearest_short(double value) {
    constexpr Bits exponent_mask = Bits(0x7ff) << 52;
    constexpr Bits lowest = Bits(F::emin + 1023) << 52, highest = Bits(F::bias + 1 + 1023) << 52;
    Bits power = bits_of(value) & exponent_mask;
    power = power < lowest ? lowest : power > highest ? highest : power;
    double units = 1.5 * double_of(power + (Bits(52 - F::mantissa_bits) << 52));
    double rounded = std::fabs((value + units) - units);

    Bits normal = (bits_of(rounded) >> (52 - F::mantissa_bits)) -
                  (Bits(1023 - F::bias) << F::mantissa_bits);
    // Beside the smallest normal number a subnormal one has its bits in the right place.
    double smallest = double_of(lowest);
    Bits subnormal = (bits_of(rounded + smallest) >> (52 - F::mantissa_bits)) -
                     (Bits(1024 - F::bias) << F::mantissa_bits);
    Bits magnitude = rounded < smallest ? subnormal : normal;
    Bits beyond = F::saturates ? F::largest : F::infinity;
    magnitude = magnitude > F::largest ? beyond : magnitude;
    return magnitude | (bits_of(value) >> 63) << (F::bits - 1);
}

template <class F> Bits nearest(double value) {
    if (value != value) return F::nan;
    if constexpr (F::bits <= 16) return nearest_short<F>(value);
    else if constexpr (F::bits == 32) return bits_of(flushed<F>(static_cast<float>(value)));
    else return bits_of(value);
}

// A sum in double is exact for f16 and fp8. For bf16 it is rounded twice, which is the same as
// once, since 53 bits are at least twice 8 and two more (Figueroa 1995). For f32 and f64 the host
// has the sum itself.
struct Add {
    template <class F> static Bits result(double a, double b) {
        if constexpr (F::bits == 32) return nearest<F>(static_cast<float>(a) + static_cast<float>(b));
        else return nearest<F>(a + b);
    }
};

// One of the two as it is: nothing is rounded, and an infinity stays one.
template <bool LARGER> struct Choose {
    template <class F> static Bits result(double a, double b) {
        using Kept = Format<F::exponent_bits, F::mantissa_bits, F::nan, F::infinities>;
        bool a_is_first = a < b || (a == b && std::signbit(a));  // -0 is below +0
        bool take_a = b != b || (a == a && a_is_first != LARGER);
        return nearest<Kept>(take_a ? a : b);
    }
};
using Min = Choose<false>;
using Max = Choose<true>;
