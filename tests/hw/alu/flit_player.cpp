// Plays records into a verilated check, one a cycle, and writes what comes out in each cycle.
//
//   player INPUT OUTPUT
//
// A record is 20 bytes: attr, load, slot (where the check has SLOTS), 0, and the operand's 16 bytes,
// low byte first. The output has 16 bytes a cycle.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "Vcheck.h"

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    FILE* input = std::fopen(argv[1], "rb");
    FILE* output = std::fopen(argv[2], "wb");
    if (!input || !output) return 2;
    static Vcheck top;
    uint8_t record[20];
    top.rst = 0;
    while (std::fread(record, sizeof record, 1, input) == 1) {
        top.attr = record[0];
        top.load = record[1];
#if SLOTS
        top.slot = record[2];
#endif
        std::memcpy(&top.operand, record + 4, 16);
        top.clk = 0;
        top.eval();
        std::fwrite(&top.o, 16, 1, output);
        top.clk = 1;
        top.eval();
    }
    return std::fclose(output) != 0;
}
