// Plays a script on a Verilated switch: sends, answers, compares. Meaning is script.py's; here is
// only what happens when.
//
//     player SCRIPT RESULT name=value...
//
// Parameters: window, loads, stores (0: any number), latency_low, latency_high, stalls (in 2^32),
// seed, limit, bin, most (mismatches until it gives up). Prints "done N" now and then: requests that are done.

#include "port.h"
#include "verilated.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <unordered_map>

enum Wrong : uint64_t { UNEXPECTED, FLIT, LENGTH, POISON, ORDER, PROTOCOL, LOG, HUNG, REGISTER };

struct Mismatch {
    uint64_t kind, cycle, port, responses;
    int64_t row, replica;
    uint64_t flit;
    Word wanted, got;
};

struct Due {
    uint64_t cycle, serial, tag;
    uint32_t replica;
    bool operator<(const Due& other) const {  // of a heap whose top is due first
        return cycle != other.cycle ? cycle > other.cycle : serial > other.serial;
    }
};

struct Lane {
    size_t next, last, unanswered;
};

struct Port {
    Source req, rsp;
    Sink replicas, answers;
    std::vector<Due> due;
    std::vector<size_t> lanes;
    size_t turn = 0;      // lane that is asked first
    bool changed = true;  // a lane that could not go may be able to
    bool responses_first = false;
    unsigned loads = 0, stores = 0;
    Queue<uint16_t> locals;
    std::vector<int64_t> by_local;
    std::unordered_map<uint64_t, uint32_t> sessions;
    uint64_t new_flits = 0;
};

class Player {
public:
    Player(const ArraysIn& in, const std::map<std::string, uint64_t>& options)
        : script_(in), options_(options), ports_(dut_.ports.size()), random_(option("seed")) {
        size_t ports = ports_.size();
        for (size_t p = 0; p < ports; ++p) {
            ports_[p].req.pins = dut_.ports[p].rx_req;
            ports_[p].rsp.pins = dut_.ports[p].rx_rsp;
            ports_[p].replicas.pins = dut_.ports[p].tx_req;
            ports_[p].answers.pins = dut_.ports[p].tx_rsp;
        }
        bin_ = option("bin");
        most_ = option("most");
        stalls_ = option("stalls");
        limit_ = option("limit");
        window_ = option("window");
        loads_ = option("loads");
        stores_ = option("stores");
        latency_low_ = option("latency_low");
        latency_high_ = option("latency_high");
    }

    void run() {
        size_t next_reset = 0;
        reset();
        auto told = std::chrono::steady_clock::now();
        while (!finished_ && mismatches_.size() < most_) {
            if (next_reset < script_.reset_count && cycle_ >= uint64_t(script_.resets[next_reset])) {
                ++next_reset;
                reset();
            }
            drive();
            dut_.eval(false, false);
            sample();
            dut_.eval(true, false);
            ++cycle_;
            if (cycle_ - alive_ > limit_) {
                hang();
                break;
            }
            if (cycle_ % 1024 == 0) {
                auto now = std::chrono::steady_clock::now();
                if (now - told > std::chrono::milliseconds(500)) {
                    told = now;
                    printf("done %zu\n", done_);
                    fflush(stdout);
                }
            }
        }
    }

    void write(const char* path, double seconds) {
        std::vector<uint64_t> summary{start_, cycle_, checked_, done_, uint64_t(seconds * 1e9)};
        ArraysOut out;
        out.add("summary", summary);
        out.add("first", first_);
        out.add("last", last_);
        out.add("flits", flits_);
        out.add("stream_flits", stream_flits_);
        out.add("bins", bins_);
        out.add("sent", sent_);
        out.add("latency", latency_);
        out.add("log_source", log_source_);
        out.add("log_cycle", log_cycle_);
        out.add("logged", logged_);
        out.add("results", results_);
        out.add("reads", reads_);
        out.add("mismatches", mismatches_);
        out.write(path);
    }

private:
    uint64_t option(const char* name) const {
        auto found = options_.find(name);
        if (found == options_.end()) die(std::string(name) + " must be given");
        return found->second;
    }

    // Everything as at the beginning; the script starts again.
    void reset() {
        const size_t ports = ports_.size(), rows = script_.rows;
        finished_ = false;
        step_ = 0;
        busy_ = false;
        start_ = 0;
        checked_ = done_ = serial_ = 0;
        groups_.assign(1 << 16, 0);
        for (size_t row = 0; row < rows; ++row) ++groups_[script_.group[row]];
        released_.assign(1 << 16, false);
        left_.assign(rows, 0);
        for (size_t row = 0; row < rows; ++row) {
            left_[row] = replicas(row);
        }
        lanes_.resize(script_.lanes);
        for (size_t k = 0; k < script_.lanes; ++k) {
            lanes_[k] = {size_t(script_.lane_at[k]), size_t(script_.lane_at[k + 1]), 0};
        }
        coming_.assign(ports * ports, {});
        replying_.assign(ports * ports, {});
        first_.assign(2 * ports, -1);
        last_.assign(2 * ports, -1);
        flits_.assign(2 * ports, 0);
        stream_flits_.assign(4, 0);
        bins_.clear();
        sent_.assign(rows, -1);
        latency_.assign(rows, -1);
        log_source_.assign(script_.replicas, 0);
        log_cycle_.assign(script_.replicas, 0);
        logged_.assign(rows, 0);
        local_.assign(rows, 0);
        tags_.assign(script_.replicas, 0);
        results_.assign(script_.result_at[rows], Word{});
        reads_.clear();
        for (size_t p = 0; p < ports; ++p) {
            Port& port = ports_[p];
            for (Source* source : {&port.req, &port.rsp}) {
                source->packet = Packet{};
                source->hide();
            }
            port.replicas.clear();
            port.answers.clear();
            port.due.clear();
            port.lanes.clear();
            for (int64_t k = script_.port_lanes[p]; k < script_.port_lanes[p + 1]; ++k) {
                port.lanes.push_back(k);
            }
            port.turn = 0;
            port.changed = true;
            port.loads = port.stores = 0;
            port.locals.clear();
            for (unsigned k = 0; k < LOCALS; ++k) port.locals.push(k);
            port.by_local.assign(LOCALS, -1);
            port.sessions.clear();
        }
        AxilPins& axil = dut_.axil;
        *axil.awvalid = *axil.wvalid = *axil.arvalid = *axil.bready = *axil.rready = 0;
        *axil.wstrb = 15;
        for (int k = 0; k < 4; ++k) {
            dut_.eval(false, true);
            dut_.eval(true, true);
            ++cycle_;
        }
        alive_ = cycle_;
    }

    uint32_t replicas(uint32_t row) const {
        return script_.replica_at[row + 1] - script_.replica_at[row];
    }

    void wrong(Wrong kind, size_t port, bool responses, int64_t row, int64_t replica = -1,
               unsigned flit = 0, Word wanted = {}, Word got = {}) {
        mismatches_.push_back(
            {kind, cycle_, port, responses, row, replica, flit, wanted, got});
    }

    // Nothing moved for too long: every request that was begun and not finished is lost.
    void hang() {
        bool any = false;
        for (size_t row = 0; row < script_.rows && mismatches_.size() < most_; ++row) {
            bool silent = script_.is[row] & ANSWERED && latency_[row] < 0;
            bool open = sent_[row] >= 0 && (left_[row] || silent);
            if (open) wrong(HUNG, script_.port[row], false, row);
            any |= open;
        }
        if (!any) wrong(HUNG, 0, false, -1);
    }

    // Inputs for this cycle.

    void drive() {
        for (size_t p = 0; p < ports_.size(); ++p) {
            Port& port = ports_[p];
            // The two streams are one link: at most one of them shows a new flit in a cycle.
            bool could[2] = {!port.req.shown && has_request(p), !port.rsp.shown && has_answer(p)};
            if (could[0] && could[1]) {
                could[port.responses_first ? 0 : 1] = false;
                port.responses_first = !port.responses_first;
            }
            if (!port.req.shown) could[0] ? port.req.show() : port.req.hide();
            if (!port.rsp.shown) could[1] ? port.rsp.show() : port.rsp.hide();
            *port.replicas.pins.ready = !random_.chance(stalls_);
            *port.answers.pins.ready = !random_.chance(stalls_);
        }
        drive_registers();
    }

    bool has_request(size_t p) {
        Port& port = ports_[p];
        if (random_.chance(stalls_)) return false;
        if (port.req.packet.active()) return true;
        if (!port.changed) return false;
        size_t number = port.lanes.size();
        for (size_t k = 0; k < number; ++k) {
            size_t place = port.turn + k < number ? port.turn + k : port.turn + k - number;
            Lane& lane = lanes_[port.lanes[place]];
            if (lane.next == lane.last || !may_go(port, lane)) continue;
            port.turn = place + 1 < number ? place + 1 : 0;
            begin_request(p, lane);
            return true;
        }
        port.changed = false;
        return false;
    }

    bool may_go(const Port& port, const Lane& lane) {
        uint32_t row = script_.lane_rows[lane.next];
        if (!released_[script_.group[row]]) return false;
        uint8_t is = script_.is[row];
        if (!(is & ANSWERED)) return true;
        auto over = [](uint64_t now, uint64_t most) { return most && now >= most; };
        if (over(lane.unanswered, window_) || port.locals.empty()) return false;
        if (is & LOAD ? over(port.loads, loads_) : over(port.stores, stores_)) return false;
        // The log tells sessions of a port apart by address and stage.
        return !(is & SESSION) || !port.sessions.count(script_.key[row]);
    }

    void begin_request(size_t p, Lane& lane) {
        Port& port = ports_[p];
        uint32_t row = script_.lane_rows[lane.next++];
        uint8_t is = script_.is[row];
        Packet& packet = port.req.packet;
        packet.head = script_.heads + script_.head_at[row];
        packet.heads = script_.head_at[row + 1] - script_.head_at[row];
        packet.data = script_.pool + script_.data_at[row];
        packet.flits = packet.heads + script_.sent_flits[row];
        packet.next = 0;
        packet.poisoned = is & POISONED;
        packet.id = row;
        packet.tag = 0;
        if (is & ANSWERED) {
            unsigned local = port.locals.front();
            port.locals.pop();
            port.by_local[local] = row;
            local_[row] = local;
            packet.tag = uint64_t(local) << TAG_SHIFT;
            ++lane.unanswered;
            ++(is & LOAD ? port.loads : port.stores);
        }
        if (is & SESSION) port.sessions[script_.key[row]] = row;
        for (int64_t k = script_.replica_at[row]; k < script_.replica_at[row + 1]; ++k) {
            coming_[p * ports_.size() + script_.replica_port[k]].push(k);
        }
    }

    bool has_answer(size_t p) {
        Port& port = ports_[p];
        if (random_.chance(stalls_)) return false;
        if (port.rsp.packet.active()) return true;
        if (port.due.empty() || port.due.front().cycle > cycle_) return false;
        std::pop_heap(port.due.begin(), port.due.end());
        Due due = port.due.back();
        port.due.pop_back();
        Packet& packet = port.rsp.packet;
        packet.head = script_.reply + due.replica;
        packet.heads = 1;
        packet.data = script_.pool + script_.reply_at[due.replica];
        packet.flits = 1 + script_.reply_flits[due.replica];
        packet.next = 0;
        packet.poisoned = script_.reply_poison[due.replica];
        packet.tag = due.tag << TAG_SHIFT;
        packet.id = due.replica;
        uint32_t row = script_.replica_row[due.replica];
        if (script_.is[row] & ORDERED) {
            replying_[p * ports_.size() + script_.port[row]].push(row);
        }
        return true;
    }

    // What happened in this cycle.

    void sample() {
        for (size_t p = 0; p < ports_.size(); ++p) {
            Port& port = ports_[p];
            if (port.req.taken()) {
                count(p, 0, 0);
                Packet& packet = port.req.packet;
                if (packet.next == 1) sent_[packet.id] = cycle_;
                // All others end with their answer, or with their last replica.
                if (!packet.active() && !(script_.is[packet.id] & ANSWERED) && !replicas(packet.id)) {
                    finish(packet.id);
                }
            }
            if (port.rsp.taken()) count(p, 0, 1);
            port.new_flits = 0;
            if (flit_taken(p, port.replicas, false)) replica_flit(p);
            if (flit_taken(p, port.answers, true)) answer_flit(p);
            if (port.new_flits > 1) wrong(PROTOCOL, p, false, -1);
            if (*dut_.ports[p].log_valid) log(p);
        }
        sample_registers();
    }

    void count(size_t p, int direction, int responses) {
        size_t link = 2 * p + direction;
        if (first_[link] < 0) first_[link] = cycle_;
        last_[link] = cycle_;
        ++flits_[link];
        ++stream_flits_[2 * direction + responses];
        size_t place = (cycle_ - start_) / bin_ * 2 * ports_.size() + link;
        if (place >= bins_.size()) bins_.resize(((cycle_ - start_) / bin_ + 1) * 2 * ports_.size());
        ++bins_[place];
        alive_ = cycle_;
    }

    bool flit_taken(size_t p, Sink& sink, bool responses) {
        bool valid = *sink.pins.valid;
        if (!valid) {
            if (sink.held) wrong(PROTOCOL, p, responses, -1);
            return sink.held = false;
        }
        Word word = sink.now();
        bool last = *sink.pins.last, poison = *sink.pins.poison;
        if (!sink.held) {
            ++ports_[p].new_flits;
        } else if (!(word == sink.word) || last != sink.last || poison != sink.poison) {
            wrong(PROTOCOL, p, responses, -1, -1, sink.next, sink.word, word);
        }
        sink.word = word;
        sink.last = last;
        sink.poison = poison;
        sink.held = !*sink.pins.ready;
        if (sink.held) return false;
        count(p, 1, responses);
        return true;
    }

    // A flit of a replica: the next one of its source at this port, whatever it is.
    void replica_flit(size_t p) {
        Sink& sink = ports_[p].replicas;
        if (!sink.next) {
            sink.id = find_replica(p, sink.word);
            sink.skipping = sink.id < 0;
            if (sink.skipping) {
                wrong(UNEXPECTED, p, false, -1, -1, 0, {}, sink.word);
            } else {
                uint32_t row = script_.replica_row[sink.id];
                sink.flits = script_.replica_head_at[sink.id + 1] -
                             script_.replica_head_at[sink.id] + script_.data_flits[row];
            }
        }
        if (!sink.skipping) compare_replica(p, sink);
        ++sink.next;
        if (!sink.last) return;
        if (!sink.skipping) replica_done(p, sink);
        sink.next = 0;
    }

    int64_t find_replica(size_t p, const Word& header) {
        size_t ports = ports_.size();
        if (ANSWERED_CMDS >> cmd_of(header.lo) & 1) {
            size_t source = tag_of(header.lo) >> LOCAL_BITS;
            if (source >= ports || coming_[source * ports + p].empty()) return -1;
            Queue<uint32_t>& queue = coming_[source * ports + p];
            uint32_t replica = queue.front();
            queue.pop();
            return replica;
        }
        // A posted packet does not say where it comes from, but its address does.
        for (size_t source = 0; source < ports; ++source) {
            Queue<uint32_t>& queue = coming_[source * ports + p];
            if (queue.empty()) continue;
            uint32_t replica = queue.front();
            if (script_.is[script_.replica_row[replica]] & ANSWERED) continue;
            if (!(script_.replica_heads[script_.replica_head_at[replica]] == header)) continue;
            queue.pop();
            return replica;
        }
        return -1;
    }

    void compare_replica(size_t p, Sink& sink) {
        uint32_t row = script_.replica_row[sink.id];
        uint8_t is = script_.is[row];
        int64_t head = script_.replica_head_at[sink.id];
        int64_t heads = script_.replica_head_at[sink.id + 1] - head;
        Word wanted{};
        if (sink.next < sink.flits) {
            wanted = sink.next < heads
                         ? script_.replica_heads[head + sink.next]
                         : script_.pool[script_.data_at[row] + sink.next - heads];
        }
        if (!sink.next && is & ANSWERED) {
            uint64_t tag = sink.word.lo & TAG_MASK;  // of a session the rest is the switch's choice
            if (!(is & SESSION)) tag = wanted_tag(row);
            wanted.lo |= tag;
        }
        bool last = sink.next + 1 == sink.flits;
        if (last != sink.last) {
            wrong(LENGTH, p, false, row, sink.id, sink.next);
        } else if (!(wanted == sink.word)) {
            wrong(FLIT, p, false, row, sink.id, sink.next, wanted, sink.word);
        } else if (sink.poison != (last && is & PASSES_POISON)) {
            wrong(POISON, p, false, row, sink.id, sink.next);
        } else {
            if (!sink.next) tags_[sink.id] = tag_of(sink.word.lo);
            return;
        }
        sink.skipping = true;
    }

    uint64_t wanted_tag(uint32_t row) {
        size_t p = script_.port[row];
        return (uint64_t(p) << LOCAL_BITS | local_[row]) << TAG_SHIFT;
    }

    void replica_done(size_t p, Sink& sink) {
        uint32_t row = script_.replica_row[sink.id];
        ++checked_;
        --left_[row];
        if (!(script_.is[row] & ANSWERED)) {
            if (!left_[row]) finish(row);
            return;
        }
        Port& port = ports_[p];
        uint64_t due = cycle_ + random_.between(latency_low_, latency_high_);
        port.due.push_back({due, serial_++, tags_[sink.id], uint32_t(sink.id)});
        std::push_heap(port.due.begin(), port.due.end());
    }

    // A flit of an answer to a request of this port, which its tag names.
    void answer_flit(size_t p) {
        Port& port = ports_[p];
        Sink& sink = port.answers;
        if (!sink.next) {
            unsigned tag = tag_of(sink.word.lo);
            sink.id = tag >> LOCAL_BITS == p ? port.by_local[tag % LOCALS] : -1;
            sink.skipping = sink.id < 0;
            if (sink.skipping) {
                wrong(UNEXPECTED, p, true, -1, -1, 0, {}, sink.word);
            } else {
                latency_[sink.id] = cycle_ - sent_[sink.id];
                sink.flits = 1 + script_.result_at[sink.id + 1] - script_.result_at[sink.id];
                if (script_.is[sink.id] & ORDERED) check_order(p, sink.id);
            }
        }
        if (!sink.skipping) compare_answer(p, sink);
        ++sink.next;
        if (!sink.last) return;
        if (!sink.skipping) answer_done(p, sink.id);
        sink.next = 0;
    }

    // Answers of one GPU to another keep their order.
    void check_order(size_t p, uint32_t row) {
        uint32_t target = script_.replica_port[script_.replica_at[row]];
        Queue<uint32_t>& queue = replying_[target * ports_.size() + p];
        if (queue.empty() || queue.front() != row) {
            wrong(ORDER, p, true, row);
        } else {
            queue.pop();
        }
    }

    void compare_answer(size_t p, Sink& sink) {
        int64_t row = sink.id;
        uint8_t is = script_.is[row];
        Word wanted = sink.word;
        if (!sink.next) {
            wanted = script_.answer[row];
            wanted.lo |= sink.word.lo & TAG_MASK;
        } else if (sink.next < sink.flits) {
            if (script_.answer_at[row] >= 0) {
                wanted = script_.pool[script_.answer_at[row] + sink.next - 1];
            }
            results_[script_.result_at[row] + sink.next - 1] = sink.word;
        }
        bool last = sink.next + 1 == sink.flits;
        if (!(wanted == sink.word)) {
            wrong(FLIT, p, true, row, -1, sink.next, wanted, sink.word);
        } else if (last != sink.last) {
            wrong(LENGTH, p, true, row, -1, sink.next);
        } else if (sink.poison != (last && is & ANSWER_POISONED)) {
            wrong(POISON, p, true, row, -1, sink.next);
        } else {
            return;
        }
        sink.skipping = true;
    }

    void answer_done(size_t p, uint32_t row) {
        Port& port = ports_[p];
        uint8_t is = script_.is[row];
        if (left_[row]) wrong(ORDER, p, true, row);  // an answer before the last replica
        if (is & SESSION) {
            if (logged_[row] != replicas(row)) wrong(LOG, p, true, row);
            port.sessions.erase(script_.key[row]);
        }
        port.by_local[local_[row]] = -1;
        port.locals.push(local_[row]);
        --lanes_[script_.lane[row]].unanswered;
        --(is & LOAD ? port.loads : port.stores);
        ++checked_;
        finish(row);
    }

    void finish(uint32_t row) {
        ++done_;
        --groups_[script_.group[row]];
        ports_[script_.port[row]].changed = true;
    }

    void log(size_t p) {
        const PortPins& pins = dut_.ports[p];
        uint64_t key = *pins.log_maddr << 1 | *pins.log_stage;
        auto found = ports_[p].sessions.find(key);
        if (found == ports_[p].sessions.end()) return wrong(LOG, p, true, -1);
        uint32_t row = found->second;
        int64_t place = script_.replica_at[row] + logged_[row];
        if (place >= script_.replica_at[row + 1]) return wrong(LOG, p, true, row);
        log_source_[place] = *pins.log_source;
        log_cycle_[place] = cycle_;
        ++logged_[row];
    }

    // Register accesses, one at a time, in the order of the script.

    void drive_registers() {
        AxilPins& axil = dut_.axil;
        if (busy_) {
            for (int k = 0; k < 3; ++k) {
                if (taken_[k]) *(k == 0 ? axil.awvalid : k == 1 ? axil.wvalid : axil.arvalid) = 0;
            }
            return;
        }
        *axil.awvalid = *axil.wvalid = *axil.arvalid = *axil.bready = *axil.rready = 0;
        const Step& step = script_.steps[step_];
        switch (step.op) {
            case WRITE:
                dut_.address(step.a, 0);
                *axil.wdata = step.b;
                *axil.awvalid = *axil.wvalid = *axil.bready = 1;
                busy_ = true;
                break;
            case READ:
                dut_.address(0, step.a);
                *axil.arvalid = *axil.rready = 1;
                busy_ = true;
                break;
            case RELEASE:
                if (!start_) start_ = cycle_;
                released_[step.a] = true;
                for (Port& port : ports_) port.changed = true;
                ++step_;
                break;
            case WAIT:
                step_ += !groups_[step.a];
                break;
            case WAIT_ALL:
                step_ += done_ == script_.rows;
                break;
            case SLEEP:
                if (slept_++ >= step.a) {
                    slept_ = 0;
                    ++step_;
                }
                alive_ = cycle_;
                break;
            case END:
                finished_ = true;
        }
    }

    void sample_registers() {
        if (!busy_) return;
        AxilPins& axil = dut_.axil;
        alive_ = cycle_;
        taken_[0] = *axil.awvalid && *axil.awready;
        taken_[1] = *axil.wvalid && *axil.wready;
        taken_[2] = *axil.arvalid && *axil.arready;
        const Step& step = script_.steps[step_];
        bool read = step.op == READ;
        if (!(read ? *axil.rvalid : *axil.bvalid)) return;
        if (read) reads_.push_back(*axil.rdata);
        if (read ? *axil.rresp : *axil.bresp) wrong(REGISTER, 0, false, step.a);
        busy_ = false;
        ++step_;
    }

    Script script_;
    std::map<std::string, uint64_t> options_;
    Dut dut_;
    std::vector<Port> ports_;
    std::vector<Lane> lanes_;
    Random random_;
    uint64_t bin_, most_, stalls_, limit_, window_, loads_, stores_, latency_low_, latency_high_;
    uint64_t cycle_ = 0, start_ = 0, alive_ = 0, checked_ = 0, serial_ = 0, step_ = 0, slept_ = 0;
    size_t done_ = 0;
    bool busy_ = false;
    bool taken_[3] = {};
    bool finished_ = false;
    std::vector<uint32_t> groups_, left_;
    std::vector<bool> released_;
    std::vector<Queue<uint32_t>> coming_, replying_;
    std::vector<int64_t> first_, last_, flits_, stream_flits_, sent_, latency_;
    std::vector<uint32_t> bins_, log_cycle_, tags_;
    std::vector<uint16_t> log_source_, logged_, local_;
    std::vector<Word> results_;
    std::vector<uint64_t> reads_;
    std::vector<Mismatch> mismatches_;
};

int main(int count, char** words) {
    if (count < 3) die("usage: player SCRIPT RESULT name=value...");
    std::map<std::string, uint64_t> options;
    for (int k = 3; k < count; ++k) {
        std::string word = words[k];
        size_t at = word.find('=');
        if (at == std::string::npos) die(word + " must be name=value");
        options[word.substr(0, at)] = strtoull(word.c_str() + at + 1, nullptr, 10);
    }
    ArraysIn in(words[1]);
    Player player(in, options);
    std::clock_t start = std::clock();
    player.run();
    player.write(words[2], double(std::clock() - start) / CLOCKS_PER_SEC);
    return 0;
}
