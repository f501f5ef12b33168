// Runs a verilated unit over a space of operands and compares every result with the oracle.
//
// Compiled once for each target: OPERATION is Add, Min, Max or Convert; SOURCE and RESULT are
// formats. The unit's ports are bit planes: bit n of plane k is bit k of lane n.
//
//   check whole FIRST LAST SEED      blocks of the whole space, 64 operands each, in order
//   check sample FIRST LAST SEED     blocks spread over the whole space, and directed ones between
//   check directed FIRST LAST SEED   directed random blocks
//   check answer                     reads lines "A B" in hex, prints what the unit gives for each
//                                    and what is wanted
//
// Prints lines "done BLOCKS", the blocks since the last such line, up to ten lines
// "wrong A B GOT WANTED", and at last "total CHECKED WRONG SUM XOR".
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "Vunit.h"
#include "blocks.h"

// Compiled twice, and chosen by what the processor can: twice as fast where it has AVX2.
#if defined __x86_64__ && defined __linux__
#define SEVERAL_AT_ONCE __attribute__((target_clones("avx2", "default")))
#else
#define SEVERAL_AT_ONCE
#endif

namespace {

struct Convert {
    template <class F> static Bits result(double a, double) { return nearest<F>(a); }
};

constexpr bool is_pair = !std::is_same_v<OPERATION, Convert>;
constexpr int operand_bits = SOURCE::bits, result_bits = RESULT::bits;
constexpr int space_bits = is_pair ? 2 * operand_bits : operand_bits;
constexpr Bits operand_mask = SOURCE::sign | (SOURCE::sign - 1);
constexpr bool is_countable = space_bits <= 32;
constexpr uint64_t whole = is_countable ? (uint64_t(1) << space_bits % 64) / LANES : 0;
constexpr int most_shown = 10;

// Sum and xor of the mixed words (a, b, result) over a space of 16-bit pairs: something that can
// be asked of another machine's adder too.
struct CheckSum {
    uint64_t sum = 0, exclusive = 0;

    void take(Bits a, Bits b, Bits result) {
        uint64_t k = (a << 32 | b << 16 | result) * 0x9e3779b97f4a7c15;
        k ^= k >> 29;
        k *= 0xbf58476d1ce4e5b9;
        k ^= k >> 32;
        sum += k;
        exclusive ^= k;
    }
};

Vunit unit;
Values a, b;
Numbers left, right;  // what a and b stand for
uint64_t checked, wrong;
CheckSum check_sum;

SEVERAL_AT_ONCE void expect(Values &expected) {
    for (int lane = 0; lane < LANES; ++lane)
        expected[lane] = OPERATION::template result<RESULT>(left[lane], right[lane]);
}

SEVERAL_AT_ONCE bool is_as_expected(Values &got, Values &expected) {
    Planes<result_bits> planes;
    for (int k = 0; k < result_bits; ++k) planes[k] = unit.o[k];
    to_values<result_bits>(planes, got);
    expect(expected);
    Bits difference = 0;
    for (int lane = 0; lane < LANES; ++lane) difference |= got[lane] ^ expected[lane];
    return !difference;
}

// Runs the unit on what its ports hold, which is the block in `a` and `b`.
void check_block() {
    Values expected, got;
    unit.eval();
    bool is_right = is_as_expected(got, expected);
    if constexpr (is_pair && operand_bits == 16)
        for (int lane = 0; lane < LANES; ++lane) check_sum.take(a[lane], b[lane], got[lane]);
    checked += LANES;
    for (int lane = 0; !is_right && lane < LANES; ++lane) {
        if (got[lane] == expected[lane] || ++wrong > most_shown) continue;
        std::printf("wrong %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", a[lane], b[lane],
                    got[lane], expected[lane]);
    }
}

// Operands that count through the space: {a, b}, or a alone, is 64 * block + lane.
SEVERAL_AT_ONCE void count(uint64_t block) {
    static constexpr Bits lanes[] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
                                     0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000};
    constexpr int high = is_pair ? operand_bits : 0;  // where a begins
    uint64_t first = block * LANES;
    Bits first_a = first >> high & operand_mask, first_b = is_pair ? first & operand_mask : 0;
    for (int lane = 0; lane < LANES; ++lane) {
        a[lane] = is_pair ? first_a : first_a + lane;
        b[lane] = is_pair ? first_b + lane : 0;
        left[lane] = number<SOURCE>(is_pair ? first_a : first_a + lane);
        right[lane] = number<SOURCE>(is_pair ? first_b + lane : 0);
    }
    for (int k = 0; k < operand_bits; ++k) {
        Bits low = k < 6 ? lanes[k % 6] : -(first >> k & 1);
        unit.a[k] = is_pair ? -(first >> (k + high) % 64 & 1) : low;
        unit.b[k] = is_pair ? low : 0;
    }
}

template <class Port> void drive(Port &port, const Values &values, Numbers &numbers) {
    for (int lane = 0; lane < LANES; ++lane) numbers[lane] = number<SOURCE>(values[lane]);
    Planes<operand_bits> planes = to_planes<operand_bits>(values);
    for (int k = 0; k < operand_bits; ++k) port[k] = planes[k];
}

void direct(uint64_t seed, uint64_t block) {
    Directed<SOURCE>::fill(seed, block, a, b);
    drive(unit.a, a, left);
    drive(unit.b, b, right);
}

// The multiplier is odd, so that no block comes twice before all have come.
void sample(uint64_t seed, uint64_t block) {
    if (block & 1) direct(seed, block / 2);
    else count((block / 2 * 0x9e3779b97f4a7c15 + seed) % (whole ? whole : 1));
}

int run(const std::string &mode, uint64_t first, uint64_t last, uint64_t seed) {
    if (!is_countable && mode != "directed") return 2;
    auto told = std::chrono::steady_clock::now();
    uint64_t reached = first;
    for (uint64_t block = first; block < last; ++block) {
        if (mode[0] == 'w') count(block);
        else if (mode[0] == 's') sample(seed, block);
        else direct(seed, block);
        check_block();
        if (block % 4096) continue;
        auto now = std::chrono::steady_clock::now();
        if (now - told < std::chrono::milliseconds(200)) continue;
        told = now;
        std::printf("done %" PRIu64 "\n", block - reached);
        reached = block;
        std::fflush(stdout);
    }
    std::printf("total %" PRIu64 " %" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", checked, wrong,
                check_sum.sum, check_sum.exclusive);
    return wrong != 0;
}

int answer() {
    while (std::scanf("%" SCNx64 " %" SCNx64, &a[0], &b[0]) == 2) {
        Values got, expected;
        drive(unit.a, a, left);
        drive(unit.b, b, right);
        unit.eval();
        is_as_expected(got, expected);
        std::printf("%" PRIx64 " %" PRIx64 "\n", got[0], expected[0]);
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "answer") return answer();
    if (argc != 5) return 2;
    return run(mode, std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10),
               std::strtoull(argv[4], nullptr, 10));
}
