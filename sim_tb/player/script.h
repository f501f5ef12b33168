// A script: every request with what must come of it, written by script.py.
#pragma once

#include "arrays.h"
#include "wire.h"

struct Word {
    uint64_t lo, hi;
    bool operator==(const Word& other) const { return lo == other.lo && hi == other.hi; }
};

// Of a header's low word.
static const uint64_t TAG_MASK = ((1ull << (PORT_BITS + LOCAL_BITS)) - 1) << TAG_SHIFT;
static const unsigned LOCALS = 1u << LOCAL_BITS;

inline unsigned tag_of(uint64_t lo) { return (lo & TAG_MASK) >> TAG_SHIFT; }
inline unsigned cmd_of(uint64_t lo) { return lo >> CMD_SHIFT & ((1u << CMD_BITS) - 1); }

enum Op : uint64_t { WRITE, READ, RELEASE, WAIT, WAIT_ALL, SLEEP, END };

struct Step {
    uint64_t op, a, b;
};

// What a request is to the player; a bit each.
enum Is : uint8_t { ANSWERED = 1, LOAD = 2, SESSION = 4, ORDERED = 8, POISONED = 16, PASSES_POISON = 32, ANSWER_POISONED = 64 };

struct Script {
    explicit Script(const ArraysIn& in) {
        port = in.get<uint16_t>("port", &rows);
        is = in.get<uint8_t>("is");
        group = in.get<uint16_t>("group");
        key = in.get<uint64_t>("key");
        head_at = in.get<int64_t>("head_at");
        heads = reinterpret_cast<const Word*>(in.get<uint64_t>("heads"));
        data_at = in.get<int64_t>("data_at");
        data_flits = in.get<uint8_t>("data_flits");
        sent_flits = in.get<uint8_t>("sent_flits");
        replica_at = in.get<int64_t>("replica_at");
        answer = reinterpret_cast<const Word*>(in.get<uint64_t>("answer"));
        answer_at = in.get<int64_t>("answer_at");
        result_at = in.get<int64_t>("result_at");
        lane = in.get<uint32_t>("lane");
        lane_at = in.get<int64_t>("lane_at", &lanes);
        --lanes;
        lane_rows = in.get<uint32_t>("lane_rows");
        port_lanes = in.get<int64_t>("port_lanes");
        replica_port = in.get<uint16_t>("replica_port", &replicas);
        replica_row = in.get<uint32_t>("replica_row");
        replica_head_at = in.get<int64_t>("replica_head_at");
        replica_heads = reinterpret_cast<const Word*>(in.get<uint64_t>("replica_heads"));
        reply = reinterpret_cast<const Word*>(in.get<uint64_t>("reply"));
        reply_at = in.get<int64_t>("reply_at");
        reply_flits = in.get<uint8_t>("reply_flits");
        reply_poison = in.get<uint8_t>("reply_poison");
        pool = reinterpret_cast<const Word*>(in.get<uint64_t>("pool"));
        size_t words;
        steps = reinterpret_cast<const Step*>(in.get<uint64_t>("steps", &words));
        resets = in.get<int64_t>("resets", &reset_count);
    }

    size_t rows, replicas, lanes, reset_count;
    const uint16_t *port, *group, *replica_port;
    // DATA flits from the pool: of replicas, and of the request as it is sent.
    const uint8_t *is, *data_flits, *sent_flits, *reply_flits, *reply_poison;
    const uint64_t* key;  // of a session: the address and stage that its log entries carry
    const uint32_t *lane, *lane_rows, *replica_row;
    const int64_t *head_at, *data_at, *replica_at, *answer_at, *result_at;
    const int64_t *lane_at, *port_lanes, *replica_head_at, *reply_at, *resets;
    const Word *heads, *replica_heads, *answer, *reply, *pool;
    const Step* steps;
};
