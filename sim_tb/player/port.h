// Streams at one port: packets on their way in, and flits taken on their way out.
#pragma once

#include "pins.h"
#include "script.h"

// Small and fast; every interface and every GPU has one of its own.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 0x1234567) { next(); }
    uint64_t next() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }
    bool chance(uint64_t threshold) { return threshold && next() >> 32 < threshold; }
    uint64_t between(uint64_t low, uint64_t high) { return low + next() % (high - low + 1); }

private:
    uint64_t state_;
};

// A queue that is a ring; std::deque costs an allocation each few entries.
template <class T>
class Queue {
public:
    bool empty() const { return first_ == last_; }
    size_t size() const { return last_ - first_; }
    T& front() { return ring_[first_ & mask()]; }
    void pop() { ++first_; }
    void push(const T& value) {
        if (size() == ring_.size()) grow();
        ring_[last_++ & mask()] = value;
    }
    void clear() { first_ = last_ = 0; }

private:
    size_t mask() const { return ring_.size() - 1; }
    void grow() {
        std::vector<T> larger(ring_.empty() ? 8 : 2 * ring_.size());
        for (size_t k = first_; k < last_; ++k) larger[k - first_] = ring_[k & mask()];
        last_ -= first_;
        first_ = 0;
        ring_.swap(larger);
    }
    std::vector<T> ring_;
    size_t first_ = 0, last_ = 0;
};

// A packet as it goes in: flits from two places, the header's tag filled in.
struct Packet {
    const Word *head = nullptr, *data = nullptr;
    unsigned heads = 0, flits = 0, next = 0;
    uint64_t tag = 0;  // in place
    bool poisoned = false;
    uint32_t id = 0;  // request or replica

    bool active() const { return next < flits; }
    Word flit(unsigned k) const {
        Word word = k < heads ? head[k] : data[k - heads];
        if (!k) word.lo = (word.lo & ~TAG_MASK) | tag;
        return word;
    }
};

// The GPU's side of a stream into the switch.
struct Source {
    StreamPins pins;
    Packet packet;
    bool shown = false;

    void hide() { *pins.valid = shown = false; }
    void show() {
        Word word = packet.flit(packet.next);
        pins.data[0] = word.lo;
        pins.data[1] = word.lo >> 32;
        pins.data[2] = word.hi;
        pins.data[3] = word.hi >> 32;
        bool last = packet.next + 1 == packet.flits;
        *pins.last = last;
        *pins.poison = last && packet.poisoned;
        *pins.valid = shown = true;
    }
    bool taken() {
        if (!shown || !*pins.ready) return false;
        shown = false;
        ++packet.next;
        return true;
    }
};

// The GPU's side of a stream out of the switch.
struct Sink {
    StreamPins pins;
    bool held = false;  // a flit was shown and not taken
    Word word{};
    bool last = false, poison = false;
    // The packet that is being received.
    int64_t id = -1;  // request or replica; -1 before the header
    unsigned next = 0, flits = 0;
    bool skipping = false;  // something was wrong with it

    Word now() const {
        return {pins.data[0] | uint64_t(pins.data[1]) << 32,
                pins.data[2] | uint64_t(pins.data[3]) << 32};
    }
    void clear() {
        held = skipping = false;
        id = -1;
        next = 0;
        *pins.ready = 0;
    }
};
