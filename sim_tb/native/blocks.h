// Operands in blocks of 64, and the way from numbers to bit planes and back.
//
// A block has a number and is made from that number and the seed alone, so a space is the same
// however it is divided between processes.
#pragma once

#include <array>

#include "formats.h"

constexpr int LANES = 64;
using Values = std::array<Bits, LANES>;
using Numbers = std::array<double, LANES>;

// Plane k holds bit k of all lanes.
template <int WIDTH> using Planes = std::array<Bits, WIDTH>;

// Transposes the WIDTH x WIDTH squares that stand side by side in the planes: bit
// (WIDTH * j + i) of plane k becomes bit (WIDTH * j + k) of plane i.
template <int WIDTH> void transpose(Planes<WIDTH> &planes) {
    Bits mask = ~Bits(0);
    for (int step = WIDTH / 2; step; step /= 2) {
        if (step == 32) mask = 0x00000000ffffffff;
        else if (step == 16) mask = 0x0000ffff0000ffff;
        else if (step == 8) mask = 0x00ff00ff00ff00ff;
        else if (step == 4) mask = 0x0f0f0f0f0f0f0f0f;
        else if (step == 2) mask = 0x3333333333333333;
        else mask = 0x5555555555555555;
        for (int k = 0; k < WIDTH; ++k) {
            if (k & step) continue;
            Bits swapped = (planes[k] >> step ^ planes[k + step]) & mask;
            planes[k + step] ^= swapped;
            planes[k] ^= swapped << step;
        }
    }
}

template <int WIDTH> Planes<WIDTH> to_planes(const Values &values) {
    Planes<WIDTH> planes{};
    for (int j = 0; j < LANES / WIDTH; ++j)
        for (int i = 0; i < WIDTH; ++i) planes[i] |= values[WIDTH * j + i] << (WIDTH * j);
    transpose<WIDTH>(planes);
    return planes;
}

template <int WIDTH> void to_values(Planes<WIDTH> planes, Values &values) {
    transpose<WIDTH>(planes);
    constexpr Bits mask = WIDTH == 64 ? ~Bits(0) : (Bits(1) << WIDTH % 64) - 1;
    for (int j = 0; j < LANES / WIDTH; ++j)
        for (int i = 0; i < WIDTH; ++i) values[WIDTH * j + i] = planes[i] >> (WIDTH * j) & mask;
}

// Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
class Random {
  public:
    Random(uint64_t seed, uint64_t block) : state_(seed * 0xd1342543de82ef95 + block) {
        state_ = next();
    }

    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }

    uint64_t below(uint64_t bound) { return (next() >> 32) * bound >> 32; }

  private:
    uint64_t state_;
};

struct Pair { Bits a, b; };

// Pairs at which adders and roundings go wrong, rather than any.
template <class F> class Directed {
  public:
    // First every special number with every other, then every exponent with every other, each
    // with all signs; then random picks.
    static void fill(uint64_t seed, uint64_t block, Values &a, Values &b) {
        Random random(seed, block);
        for (int lane = 0; lane < LANES; ++lane) {
            uint64_t n = block * LANES + lane;
            Pair pair;
            if (n < corners) {
                pair.a = special(n / 4 / specials) | (n & 1 ? F::sign : 0);
                pair.b = special(n / 4 % specials) | (n & 2 ? F::sign : 0);
            } else if (n < corners + gaps) {
                n -= corners;
                pair.a = join(n & 1, n / 4 / fields, mantissa(random));
                pair.b = join(n >> 1 & 1, n / 4 % fields, mantissa(random));
            } else {
                pair = pick(random);
            }
            a[lane] = pair.a;
            b[lane] = pair.b;
        }
    }

  private:
    static constexpr int M = F::mantissa_bits;
    static constexpr uint64_t fields = F::max_field + 1, specials = 31;
    static constexpr uint64_t corners = 4 * specials * specials, gaps = 4 * fields * fields;

    static Bits join(Bits sign, Bits field, Bits mantissa) {
        return (sign & 1 ? F::sign : 0) | field << M | mantissa;
    }

    static Bits clamp(int64_t field) {
        return field < 0 ? 0 : field > int64_t(F::max_field) ? F::max_field : Bits(field);
    }

    static Bits special(uint64_t k) {
        constexpr Bits one = Bits(F::bias) << M, last = F::fraction, unit = Bits(1) << M;
        constexpr Bits half_place = Bits(F::bias - M - 1 > 0 ? F::bias - M - 1 : 0) << M;
        constexpr Bits integers = Bits(F::bias + M < int(F::max_field) ? F::bias + M : F::bias) << M;
        static constexpr Bits table[specials] = {
            0, 1, 2, unit / 2, last, unit, unit + 1, unit + last, 2 * unit, 2 * unit + 1,
            half_place, half_place + 1, half_place + unit, half_place + unit + 1,
            one - 1, one, one + 1, one + last, one + unit, integers - 1, integers, integers + unit,
            F::largest - unit - 1, F::largest - unit, F::largest - 1, F::largest,
            F::infinity, F::infinity + 1, F::infinity + unit / 2 - 1, F::infinity + unit / 2,
            F::sign - 1,
        };
        return table[k];
    }

    // Few ones at either end: sums of such numbers are ties, carries and long runs far more often.
    static Bits mantissa(Random &random) {
        switch (random.below(6)) {
        case 0: return 0;
        case 1: return Bits(1) << random.below(M);
        case 2: return F::fraction & ~((Bits(1) << random.below(M)) - 1);
        case 3: return (Bits(1) << random.below(M)) - 1;
        case 4: return F::fraction ^ Bits(1) << random.below(M);
        default: return random.next() & F::fraction;
        }
    }

    static Pair pick(Random &random) {
        constexpr Bits all = F::sign | (F::sign - 1);
        Bits signs = random.next(), other = signs >> 1;
        switch (random.below(7)) {
        case 0:  // anything
            return {random.next() & all, random.next() & all};
        case 1: {  // every gap of exponents that matters
            Bits field = random.below(fields);
            Bits near_it = clamp(int64_t(field) + int64_t(random.below(2 * M + 13)) - M - 6);
            return {join(signs, field, mantissa(random)), join(other, near_it, mantissa(random))};
        }
        case 2: {  // almost, or just, cancelled
            Bits a = join(signs, random.below(fields), mantissa(random));
            return {a, ((a ^ F::sign) + random.below(9) - 4) & all};
        }
        case 3: {  // half of the last place, and its neighbours
            Bits field = random.below(fields), half = clamp(int64_t(field) - M - 1) << M;
            Bits b = (half + random.below(5) - 2) & (F::sign - 1);
            return {join(signs, field, mantissa(random)), b | (other & 1 ? F::sign : 0)};
        }
        case 4:  // subnormals and the smallest normals
            return {join(signs, random.below(3), mantissa(random)),
                    join(other, clamp(random.below(M + 3)), mantissa(random))};
        case 5: {  // the largest, and infinities
            Bits a = clamp(int64_t(F::max_field) - int64_t(random.below(4)));
            Bits b = clamp(int64_t(F::max_field) - int64_t(random.below(M + 6)));
            return {join(signs, a, mantissa(random)), join(other, b, mantissa(random))};
        }
        default: {
            Bits a = special(random.below(specials)) | (signs & 1 ? F::sign : 0);
            Bits b = random.below(2) ? random.next() & all
                                     : special(random.below(specials)) | (other & 1 ? F::sign : 0);
            return {a, b};
        }
        }
    }
};
