"""What route tells replication about a packet."""

from amaranth.lib import data

from dysharp.hw.link.flit import Flit
from dysharp.hw.packet import AGE_BITS
from dysharp.hw.switch.session import session_request

__all__ = ["RouteRecord", "RoutedFlit"]


class RouteRecord(data.StructLayout):
    """All that replication must know of a packet.

    Parameters
    ----------
    ports : ports of the switch

    Members
    -------
    refused : the packet goes nowhere; nothing else holds
    posted : it carries no tag
    needs_session : it is answered by the reduction unit, for all of its ports together
    len : flits - 1
    split : where an id is cut into {GPU, slot}; 0 without a list
    born : when the packet came in; replication, where it begins to wait, fills it in
    session : ports that it goes to, and what a session must know
    """

    def __init__(self, *, ports: int):
        super().__init__(
            {
                "refused": 1,
                "posted": 1,
                "needs_session": 1,
                "len": 5,
                "split": 4,
                "born": AGE_BITS,
                "session": session_request(ports),
            }
        )


class RoutedFlit(data.StructLayout):
    """A flit, and with the first one by which its packet's way is known, the way.

    Parameters
    ----------
    ports : ports of the switch

    Members
    -------
    flit : as it came
    decided : ``record`` holds; once a packet
    record : with HDR if there is no list, else with the last TX flit. A refused packet ends here.
    """

    def __init__(self, *, ports: int):
        super().__init__({"flit": Flit, "decided": 1, "record": RouteRecord(ports=ports)})
