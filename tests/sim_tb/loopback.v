// The smallest design with every interface the agents speak; written by hand to test them.
// A flit FIFO, a record register, an AXI4 copier and two AXI4-Lite registers.
module loopback(
  input clk, input rst,
  input [127:0] i_tdata, input i_tvalid, output i_tready, input i_tlast, input i_tuser,
  output [127:0] o_tdata, output o_tvalid, input o_tready, output o_tlast, output o_tuser,
  input r_valid, output r_ready, input [47:0] r_addr, input [6:0] r_count,
  output reg q_valid, input q_ready, output reg [47:0] q_addr, output reg [6:0] q_count,
  // writes what comes in "put", answers reads of "get"
  input put_valid, output put_ready, input [47:0] put_addr, input [255:0] put_data, input [31:0] put_strb, input [3:0] put_id,
  output done_valid, input done_ready, output [3:0] done_id,
  input get_valid, output get_ready, input [47:0] get_addr, input [7:0] get_len, input [3:0] get_id,
  output got_valid, input got_ready, output [255:0] got_data, output got_last, output [3:0] got_id,
  output m_axi_awvalid, input m_axi_awready, output [47:0] m_axi_awaddr, output [3:0] m_axi_awid,
  output [7:0] m_axi_awlen, output [2:0] m_axi_awsize, output [1:0] m_axi_awburst,
  output m_axi_wvalid, input m_axi_wready, output [255:0] m_axi_wdata, output [31:0] m_axi_wstrb, output m_axi_wlast,
  input m_axi_bvalid, output m_axi_bready, input [3:0] m_axi_bid, input [1:0] m_axi_bresp,
  output m_axi_arvalid, input m_axi_arready, output [47:0] m_axi_araddr, output [3:0] m_axi_arid,
  output [7:0] m_axi_arlen, output [2:0] m_axi_arsize, output [1:0] m_axi_arburst,
  input m_axi_rvalid, output m_axi_rready, input [255:0] m_axi_rdata, input [3:0] m_axi_rid, input m_axi_rlast, input [1:0] m_axi_rresp,
  input s_axil_awvalid, output s_axil_awready, input [11:0] s_axil_awaddr,
  input s_axil_wvalid, output s_axil_wready, input [31:0] s_axil_wdata, input [3:0] s_axil_wstrb,
  output reg s_axil_bvalid, input s_axil_bready, output [1:0] s_axil_bresp,
  input s_axil_arvalid, output s_axil_arready, input [11:0] s_axil_araddr,
  output reg s_axil_rvalid, input s_axil_rready, output reg [31:0] s_axil_rdata, output [1:0] s_axil_rresp,
  input drop_valid
);
  reg [129:0] fifo [0:3]; reg [2:0] level; reg [1:0] head, tail;
  assign i_tready = level != 4;
  assign o_tvalid = level != 0 && !drop_valid;
  assign {o_tuser, o_tlast, o_tdata} = fifo[head];
  wire push = i_tvalid && i_tready, pop = o_tvalid && o_tready;
  always @(posedge clk) begin
    if (push) begin fifo[tail] <= {i_tuser, i_tlast, i_tdata}; tail <= tail + 1; end
    if (pop) head <= head + 1;
    level <= level + push - pop;
    if (rst) begin level <= 0; head <= 0; tail <= 0; end
  end
  assign r_ready = !q_valid || q_ready;
  always @(posedge clk) if (rst) q_valid <= 0; else if (r_ready) begin
    q_valid <= r_valid; q_addr <= r_addr; q_count <= r_count;
  end
  reg aw_done, w_done;
  assign m_axi_awvalid = put_valid && !aw_done;
  assign m_axi_wvalid = put_valid && !w_done;
  assign put_ready = (aw_done || m_axi_awready) && (w_done || m_axi_wready);
  assign {m_axi_awaddr, m_axi_awid, m_axi_awlen, m_axi_awsize, m_axi_awburst} = {put_addr, put_id, 8'd0, 3'd5, 2'd1};
  assign {m_axi_wdata, m_axi_wstrb, m_axi_wlast} = {put_data, put_strb, 1'b1};
  always @(posedge clk) begin
    aw_done <= put_valid && !put_ready && (aw_done || m_axi_awready);
    w_done <= put_valid && !put_ready && (w_done || m_axi_wready);
    if (rst) begin aw_done <= 0; w_done <= 0; end
  end
  assign {done_valid, m_axi_bready, done_id} = {m_axi_bvalid, done_ready, m_axi_bid};
  assign {m_axi_arvalid, get_ready, m_axi_araddr, m_axi_arlen, m_axi_arid} = {get_valid, m_axi_arready, get_addr, get_len, get_id};
  assign {m_axi_arsize, m_axi_arburst} = {3'd5, 2'd1};
  assign {got_valid, m_axi_rready, got_data, got_last, got_id} = {m_axi_rvalid, got_ready, m_axi_rdata, m_axi_rlast, m_axi_rid};
  reg [31:0] scratch [0:1];
  assign s_axil_awready = s_axil_wvalid && s_axil_awvalid && (!s_axil_bvalid || s_axil_bready);
  assign s_axil_wready = s_axil_awready;
  assign s_axil_arready = !s_axil_rvalid || s_axil_rready;
  assign s_axil_bresp = 0; assign s_axil_rresp = 0;
  always @(posedge clk) begin
    if (s_axil_bready) s_axil_bvalid <= 0;
    if (s_axil_awready) begin s_axil_bvalid <= 1; scratch[s_axil_awaddr[2]] <= s_axil_wdata; end
    if (s_axil_arready) begin s_axil_rvalid <= s_axil_arvalid; s_axil_rdata <= scratch[s_axil_araddr[2]]; end
    if (rst) begin s_axil_bvalid <= 0; s_axil_rvalid <= 0; end
  end
endmodule
