"""The RTL generator: wire format, blocks, configuration, Verilog and RTLIL out."""
