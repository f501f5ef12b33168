"""The fast player: long traffic round a switch in C++, checked against expectations in numpy."""
