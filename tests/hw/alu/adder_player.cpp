// Plays pairs into a verilated adder, one a cycle. Input: records of a, b (64 bits each), format,
// load (32 bits each). Output: the sums, 64 bits each. DEPTH, FORMATS and LOADS tell the build.
#include <cstdint>
#include <cstdio>

#include "Vadder.h"

struct Record {
    uint64_t a, b;
    uint32_t format, load;
};

static Vadder dut;

static void step(const Record &record) {
    dut.a = record.a;
    dut.b = record.b;
#if FORMATS > 1
    dut.format = record.format;
#endif
#if LOADS
    dut.load = record.load;
#endif
#if DEPTH
    dut.clk = 0;
    dut.eval();
    dut.clk = 1;
#endif
    dut.eval();
}

int main() {
    Record record{};
    bool more = true;
    for (int64_t cycle = 1, end = -1; end < 0 || cycle < end; ++cycle) {
        if (more && !std::fread(&record, sizeof record, 1, stdin)) {
            more = false;
            end = cycle + (DEPTH ? DEPTH - 1 : 0);
            if (cycle >= end) break;
        }
        step(record);
        uint64_t sum = dut.o;
        if (cycle >= (DEPTH ? DEPTH : 1)) std::fwrite(&sum, sizeof sum, 1, stdout);
    }
}
