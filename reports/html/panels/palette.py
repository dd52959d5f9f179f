"""One colour for one thing, in every chart, table and lane; light and dark.

Hues follow Okabe and Ito's set, which people with any colour vision can tell apart; where two
lines share a hue they differ in dash. Charts name a colour as a CSS variable, so that a page can
change theme, or be printed, without drawing anything again; figures ask for the value itself.
"""

from __future__ import annotations

# name -> (light, dark)
COLOURS: dict[str, tuple[str, str]] = {
    # what the page is made of
    "paper": ("#ffffff", "#14171b"),
    "panel": ("#f6f7f9", "#1c2026"),
    "ink": ("#1b1f24", "#e6e9ed"),
    "soft": ("#5a6472", "#a3adba"),
    "grid": ("#dfe3e8", "#2e343c"),
    "link": ("#005a9c", "#7cc0ff"),
    "good": ("#00734f", "#3fcf9f"),
    "bad": ("#b3261e", "#ff8a7a"),
    # the model
    "max_bw": ("#0072b2", "#56b4e9"),
    "bw_lo": ("#d55e00", "#ff8f4a"),
    "lt_bw": ("#d55e00", "#ff8f4a"),
    "bdp": ("#0072b2", "#56b4e9"),
    "min_rtt": ("#0072b2", "#56b4e9"),
    "inflight_hi": ("#a2297b", "#f09ad0"),
    "inflight_lo": ("#d55e00", "#ff8f4a"),
    "extra_acked": ("#5f7a0f", "#b5d14f"),
    # the path
    "link_rate": ("#1b1f24", "#e6e9ed"),
    "base_rtt": ("#1b1f24", "#e6e9ed"),
    "mss": ("#7a5c3e", "#b08c67"),
    # control
    "pacing_cap": ("#b3261e", "#ff8a7a"),
    "pacing": ("#00875f", "#2fc79a"),
    "cwnd": ("#b37700", "#f0b93a"),
    # what was measured
    "sample": ("#8b95a1", "#7f8995"),
    "inflight": ("#30363d", "#cdd4dc"),
    "rtt": ("#8b95a1", "#7f8995"),
    "srtt": ("#b37700", "#f0b93a"),
    "lost": ("#b3261e", "#ff8a7a"),
    "retrans_out": ("#b37700", "#f0b93a"),
    "ce": ("#5b4db5", "#a79bff"),
    "backlog": ("#5b4db5", "#a79bff"),
    "dropped": ("#b3261e", "#ff8a7a"),
    "loss_rate": ("#b3261e", "#ff8a7a"),
    "ce_rate": ("#5b4db5", "#a79bff"),
    "ecn_alpha": ("#a2297b", "#f09ad0"),
    # bytes by sequence number, and packets
    "sent": ("#30363d", "#cdd4dc"),
    "acked": ("#0072b2", "#56b4e9"),
    "rwin": ("#7a5c3e", "#b08c67"),
    "segment": ("#4c5866", "#aab4c0"),
    "sack": ("#00875f", "#2fc79a"),
    "wire_rate": ("#8b95a1", "#7f8995"),
    "pkt_rtt": ("#00875f", "#2fc79a"),
    "gap": ("#6b7280", "#9aa3af"),
    # phases
    "STARTUP": ("#e69f00", "#e6a817"),
    "DRAIN": ("#d55e00", "#e8742a"),
    "PROBE_BW": ("#9fb0c3", "#5d6f84"),
    "PROBE_BW_UP": ("#009e73", "#22b98d"),
    "PROBE_BW_DOWN": ("#cc79a7", "#d98bb6"),
    "PROBE_BW_CRUISE": ("#9fb0c3", "#5d6f84"),
    "PROBE_BW_REFILL": ("#56b4e9", "#4aa8e0"),
    "PROBE_BW_1.25": ("#009e73", "#22b98d"),
    "PROBE_BW_0.75": ("#cc79a7", "#d98bb6"),
    "PROBE_BW_1.0": ("#9fb0c3", "#5d6f84"),
    "PROBE_BW_LT": ("#b3261e", "#ff8a7a"),
    "PROBE_RTT": ("#5b4db5", "#8a7df0"),
    # congestion states
    "Open": ("#c8d2dc", "#3a444f"),
    "Disorder": ("#f0e442", "#cfc43a"),
    "CWR": ("#56b4e9", "#4aa8e0"),
    "Recovery": ("#e69f00", "#e6a817"),
    "Loss": ("#b3261e", "#ff8a7a"),
    # what limits sending: bounds look like their lines, the rest is quiet; any two in one lane are
    # apart for every colour vision (tests/reports/html/panels/test_palette.py)
    "pacing_max_bw": ("#6fbfa3", "#2b6b57"),
    "pacing_bw_lo": ("#e8825f", "#7a3a14"),
    "max_pacing_rate": ("#2f6ea8", "#3f7fc0"),
    "policer": ("#8f1410", "#ffb3a8"),
    "cwnd_target": ("#f3dc8a", "#8f6a14"),
    "inflight_hi_headroom": ("#c977ab", "#a85c90"),
    "probe_rtt": ("#a69bf0", "#5548b8"),
    "recovery": ("#e69f00", "#f5c542"),
    "receive_window": ("#7a5c3e", "#b08c67"),
    "application": ("#c8d2dc", "#3a444f"),
    "unknown": ("#eceff2", "#252b32"),
    # flows side by side
    "flow1": ("#0072b2", "#56b4e9"),
    "flow2": ("#d55e00", "#ff8f4a"),
    "flow3": ("#00875f", "#2fc79a"),
    "flow4": ("#a2297b", "#f09ad0"),
    "flow5": ("#5a3d00", "#ffe27a"),
    "flow6": ("#3b2a8c", "#7a6cf0"),
    "together": ("#8b95a1", "#7f8995"),
    "jain": ("#0072b2", "#56b4e9"),
    # congestion controls side by side, what a model says of them, and who is ahead
    "v1": ("#0072b2", "#56b4e9"),
    "v2": ("#d55e00", "#ff8f4a"),
    "v3": ("#00875f", "#2fc79a"),
    "bbr": ("#0072b2", "#56b4e9"),
    "cubic": ("#a2297b", "#f09ad0"),
    "reno": ("#5b4db5", "#a79bff"),
    "vegas": ("#b37700", "#f0b93a"),
    "other": ("#8b95a1", "#7f8995"),
    "model": ("#30363d", "#cdd4dc"),
    # a run and its simulations
    "recorded": ("#30363d", "#cdd4dc"),
    "own_rules": ("#0072b2", "#56b4e9"),
    "other_rules": ("#d55e00", "#ff8f4a"),
    "capacity": ("#30363d", "#cdd4dc"),
    "ahead": ("#d55e00", "#ff8f4a"),
    "behind": ("#0072b2", "#56b4e9"),
}


CA_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")


def variable(name: str) -> str:
    """Return the CSS expression for a colour of `COLOURS`.

    >>> variable("PROBE_BW_1.25")
    'var(--PROBE_BW_1_25)'
    """
    assert name in COLOURS, name
    return f"var(--{name.replace('.', '_')})"


def colour_of(name: str | None) -> str:
    """Return the colour of a phase, state or limit as a recording has it.

    One that is not known, because the recording lacks the row that tells it, has a colour of its
    own.

    >>> colour_of(None)
    'var(--unknown)'
    """
    return variable(name if name in COLOURS else "unknown")


# How every chart draws its axes.
AXIS = {
    "labelColor": variable("soft"),
    "titleColor": variable("soft"),
    "gridColor": variable("grid"),
    "gridOpacity": 0.7,
    "domainColor": variable("grid"),
    "tickColor": variable("grid"),
    "titleFontWeight": "normal",
}


def declarations(dark: bool) -> str:
    """Return the CSS declarations of all colours for one theme."""
    return "".join(f"--{name.replace('.', '_')}:{pair[dark]};" for name, pair in COLOURS.items())
