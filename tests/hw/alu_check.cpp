// Holds the verilated arithmetic against the host's: f32 sums, bf16 widened, f32 narrowed to bf16.
// Usage: check <million pairs> <seed>. Prints every count; exit 1 and the first cases on a mismatch.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#include "Valu_check.h"

static Valu_check dut;
static std::mt19937_64 engine;
static int mismatches;

static uint32_t random_bits() { return static_cast<uint32_t>(engine()); }
static uint32_t below(uint32_t bound) { return random_bits() % bound; }

static float number(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t pattern(float value) {
    if (std::isnan(value)) return 0x7fffffff;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void compare(const char *what, uint32_t a, uint32_t b, uint32_t got, uint32_t wanted) {
    if (got == wanted) return;
    if (++mismatches <= 10) std::printf("%s %08x %08x: %08x, not %08x\n", what, a, b, got, wanted);
}

static void tick() {
    dut.clk = 0;
    dut.eval();
    dut.clk = 1;
    dut.eval();
}

struct Pair { uint32_t a, b; };

static const uint32_t special[] = {
    0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007fffff, 0x00800000, 0x00800001, 0x00ffffff,
    0x01000000, 0x01000001, 0x33800000, 0x34000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x40000000,
    0x4b000000, 0x4b7fffff, 0x4b800000, 0x4c000000, 0x73000000, 0x73800000, 0x7effffff, 0x7f000000,
    0x7f7ffffe, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff,
};
static const uint32_t specials = sizeof special / sizeof *special;

// Few ones at either end: sums of such numbers are ties, carries and long runs far more often.
static uint32_t mantissa() {
    switch (below(6)) {
    case 0: return 0;
    case 1: return 1u << below(23);
    case 2: return 0x7fffff & ~((1u << below(23)) - 1);
    case 3: return (1u << below(23)) - 1;
    case 4: return 0x7fffff ^ 1u << below(23);
    default: return random_bits() & 0x7fffff;
    }
}

static uint32_t clamp(int exponent) { return exponent < 0 ? 0 : exponent > 254 ? 254 : exponent; }

static Pair pick() {
    uint32_t a = random_bits(), b = random_bits(), sign = random_bits() & 0x80000000;
    switch (below(6)) {
    case 0:  // anything
        return {a, b};
    case 1:  // every gap of exponents that matters
        a = (a & 0x80000000) | below(255) << 23 | mantissa();
        b = sign | clamp(int(a >> 23 & 255) + int(below(59)) - 29) << 23 | mantissa();
        return {a, b};
    case 2:  // almost, or just, cancelled
        a = (a & 0x80000000) | below(255) << 23 | mantissa();
        b = (a ^ 0x80000000) + below(9) - 4;
        return {a, b};
    case 3:  // subnormals and the smallest normals
        a = (a & 0x80000000) | below(3) << 23 | mantissa();
        b = sign | below(26) << 23 | mantissa();
        return {a, b};
    case 4:  // the largest, and infinities
        a = (a & 0x80000000) | (below(4) + 252) << 23 | mantissa();
        b = sign | (below(30) + 226) << 23 | mantissa();
        return {a, b};
    default:
        return {special[below(specials)] | (a & 0x80000000), below(2) ? b : special[below(specials)] | sign};
    }
}

static void check_sums(uint64_t pairs) {
    std::deque<Pair> flying;
    uint64_t corner = uint64_t(4) * specials * specials, gaps = uint64_t(4) * 255 * 255;
    for (uint64_t n = 0; n < corner + gaps + pairs; ++n) {
        Pair pair;
        if (n < corner) {
            pair.a = special[n / 4 / specials] | (n & 1) << 31;
            pair.b = special[n / 4 % specials] | (n & 2) << 30;
        } else if (n < corner + gaps) {  // all pairs of exponents and signs
            uint64_t k = n - corner;
            pair.a = (k & 1) << 31 | (k / 4 / 255) << 23 | mantissa();
            pair.b = (k & 2) << 30 | (k / 4 % 255) << 23 | mantissa();
        } else {
            pair = pick();
        }
        dut.a = pair.a;
        dut.b = pair.b;
        flying.push_back(pair);
        tick();
        if (flying.size() < 3) continue;
        Pair done = flying.front();
        flying.pop_front();
        compare("sum", done.a, done.b, dut.sum, pattern(number(done.a) + number(done.b)));
    }
    std::printf("sums %llu\n", (unsigned long long)(corner + gaps + pairs));
}

static void check_widening() {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        dut.bf16 = bits;
        dut.eval();
        compare("widen", bits, 0, dut.widened, pattern(number(bits << 16)));
    }
    std::printf("widened 65536\n");
}

// The nearer of the two neighbours, by their distances in double; the even one if they are equal.
static uint32_t nearest_bf16(uint32_t bits) {
    if (std::isnan(number(bits))) return 0x7fff;
    uint32_t low = bits >> 16;
    if ((low & 0x7fff) == 0x7f80) return low;
    uint32_t high = low + 1;
    double sign = bits >> 31 ? -1 : 1;
    double value = sign * number(bits), below_it = sign * number(low << 16);
    double above_it = (high & 0x7fff) == 0x7f80 ? std::ldexp(1.0, 128) : sign * number(high << 16);
    if (value - below_it != above_it - value) return value - below_it < above_it - value ? low : high;
    return low & 1 ? high : low;
}

static void check_narrowing() {
    uint64_t count = 0;
    for (uint32_t high = 0; high < 0x10000; ++high) {
        for (uint32_t k = 0; k < 40; ++k) {
            static const uint32_t edge[] = {0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
            uint32_t bits = high << 16 | (k < 8 ? edge[k] : k < 24 ? 1u << (k - 8) : below(0x10000));
            dut.f32 = bits;
            dut.eval();
            compare("narrow", bits, 0, dut.narrowed, nearest_bf16(bits));
            ++count;
        }
    }
    std::printf("narrowed %llu\n", (unsigned long long)count);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    engine.seed(std::strtoull(argv[2], nullptr, 10));
    dut.rst = 0;
    check_sums(std::strtoull(argv[1], nullptr, 10) * 1000000);
    check_widening();
    check_narrowing();
    std::printf("mismatches %d\n", mismatches);
    return mismatches != 0;
}
