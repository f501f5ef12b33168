// What the player knows of a Verilated switch: pointers to its pins. build.py writes the rest,
// pins.cpp, for the switch at hand, and wire.h, the bit positions that the player needs.
#pragma once

#include <cstdint>
#include <vector>

struct StreamPins {
    uint8_t *valid, *ready, *last, *poison;
    uint32_t* data;  // four words
};

struct PortPins {
    StreamPins rx_req, rx_rsp, tx_req, tx_rsp;
    uint8_t *log_valid, *log_stage, *log_source;
    uint64_t* log_maddr;
};

struct AxilPins {
    uint8_t *awvalid, *awready, *wvalid, *wready, *bvalid, *bready, *bresp;
    uint8_t *arvalid, *arready, *rvalid, *rready, *rresp, *wstrb;
    uint32_t *wdata, *rdata;
};

class Dut {
public:
    Dut();
    void eval(bool clk, bool rst);
    void address(uint32_t write, uint32_t read);

    std::vector<PortPins> ports;
    AxilPins axil;
};
