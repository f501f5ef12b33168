"""Native checks: whole operand spaces through a verilated unit, in C++.

``dysharp exhaust`` is the way in; ``docs/exhaust.md`` tells what is checked and how.
"""
