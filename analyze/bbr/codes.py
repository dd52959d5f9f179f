"""The decision vocabulary: one code for each branch that changes, or deliberately keeps, something.

A code is a small integer that never changes its meaning between releases. It is recorded at the
branch that decides, together with up to four numbers of evidence. For each code the table says what
it is about (`about`: the field or estimate), whether it changed that (`change`) or kept it, the
kernel function that takes the decision, the section of draft-ietf-ccwg-bbr that describes it, and
its sentence. It also names each number of evidence and its unit, in the order of note()'s
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

EVIDENCE = 4


class Unit(Enum):
    """What a number of evidence counts; sentences write it accordingly."""

    PACKETS = "packets"
    VOLUME = "packets, ~0U: unset"
    ROUNDS = "rounds"
    COUNT = "a plain number"
    LOSS_EVENTS = "loss events, 15: or more"
    BW = "pkts/us << 24"
    BW_OR_UNSET = "pkts/us << 24, ~0U: unset"
    RATE = "bytes/s"
    TIME = "us"
    TIME_OR_UNSET = "us, ~0U: unset"
    MS = "ms"
    STAMP = "the jiffy of a time to come"
    JIFFIES = "the jiffy of the event"
    GAIN = "1/256"
    SHARE = "of 256"
    FLAG = "0: no, 1: yes"
    CA_STATE = "enum tcp_ca_state"


PACKETS, VOLUME, ROUNDS, COUNT = Unit.PACKETS, Unit.VOLUME, Unit.ROUNDS, Unit.COUNT
LOSS_EVENTS = Unit.LOSS_EVENTS
BW, BW_OR_UNSET, RATE, GAIN = Unit.BW, Unit.BW_OR_UNSET, Unit.RATE, Unit.GAIN
TIME, TIME_OR_UNSET, MS = Unit.TIME, Unit.TIME_OR_UNSET, Unit.MS
STAMP, JIFFIES = Unit.STAMP, Unit.JIFFIES
SHARE, FLAG, CA_STATE = Unit.SHARE, Unit.FLAG, Unit.CA_STATE


@dataclass(frozen=True)
class Code:
    """One decision.

    Attributes:
        number: stable identifier, stored in the recordings' decision tables.
        versions: kernels that can take it, e.g. "12" for v1 and v2; "" for a variant's only.
        about: what it decides on: mode, phase, full_bw, bw, bw_lo, inflight_hi, inflight_lo,
            min_rtt, extra_acked, cwnd, pacing, policer, ecn, round, recovery, idle, fast_path, plb,
            core.
        change: True if it changed that, False if it deliberately kept it.
        function: kernel function (v2alpha prefixes some with bbr2_, see citations.kernel_function).
        draft: section title of draft-ietf-ccwg-bbr (revision: citations.DRAFT), or why there is none.
        sentence: template; the braces name the evidence, and the words for 1 of it or more:
            see probes.base.plurals.worded().
        units: name and unit of each number of evidence, in the order of note()'s arguments.
    """

    number: int
    name: str
    versions: str
    about: str
    change: bool
    function: str
    draft: str
    sentence: str
    units: dict[str, Unit]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Names of the numbers, in order."""
        return tuple(self.units)


CODES: dict[int, Code] = {}

_PLATEAU = "Exiting Acceleration Based on Bandwidth Plateau"
_STARTUP_LOSS = "Exiting Startup Based on Packet Loss"
_DRAIN = "Drain"
_DOWN, _CRUISE, _REFILL, _UP = "ProbeBW_DOWN", "ProbeBW_CRUISE", "ProbeBW_REFILL", "ProbeBW_UP"
_SCALE = "Time Scale for Bandwidth Probing"
_PRTT = "ProbeRTT"
_IDLE = "Restarting From Idle"
_MAXBW, _MINRTT, _AGG = "BBR.max_bw", "BBR.min_rtt", "BBR.extra_acked"
_LOSS_PROBE = "Probing for Bandwidth In ProbeBW"
_LOSS_NOPROBE = "When not Probing for Bandwidth"
_CWND, _RECOVERY = "cwnd Adjustment Mechanism", "Modulating cwnd in Loss Recovery"
_BOUND = "Bounding cwnd Based on Recent Congestion"
_PACING = "Pacing Rate"
_NOT_DRAFT = "not in the draft"


def _code(
    number: int,
    name: str,
    versions: str,
    about: str,
    function: str,
    draft: str,
    text: str,
    /,
    **units: Unit,
) -> int:
    """Register a code; a leading '=' in `text` marks a decision to keep things as they are."""
    assert number not in CODES
    keep = text.startswith("=")
    sentence = text.removeprefix("=")
    CODES[number] = Code(number, name, versions, about, not keep, function, draft, sentence, units)
    return number


# fmt: off
# --- connection start, full pipe ------------------------------------------------------------------
INIT = _code(1, "INIT", "123", "mode", "bbr_init", "Initialization",
    "Connection entered BBR in STARTUP with cwnd {cwnd}, min_rtt {min_rtt_us}, pacing {pacing_rate}.",
    cwnd=PACKETS, min_rtt_us=TIME_OR_UNSET, pacing_rate=RATE)
FULLBW_GREW = _code(10, "FULLBW_GREW", "123", "full_bw", "bbr_check_full_bw_reached", _PLATEAU,
    "Bandwidth {bw} is at least 1.25 x the baseline {full_bw}: new baseline, plateau count restarts.",
    bw=BW, full_bw=BW)
FULLBW_STALL_ROUND = _code(11, "FULLBW_STALL_ROUND", "123", "full_bw", "bbr_check_full_bw_reached", _PLATEAU,
    "Round {full_bw_cnt} of {full_bw_cnt_limit} without 25% bandwidth growth (needed {bw_thresh}, saw {bw}).",
    full_bw_cnt=ROUNDS, full_bw_cnt_limit=ROUNDS, bw_thresh=BW, bw=BW)
FULLBW_REACHED_PLATEAU = _code(12, "FULLBW_REACHED_PLATEAU", "123", "full_bw", "bbr_check_full_bw_reached", _PLATEAU,
    "{full_bw_cnt:round|rounds} without 25% growth over {full_bw}: the pipe is judged full at {bw}.",
    full_bw_cnt=ROUNDS, full_bw=BW, bw=BW)
FULLBW_SKIP_APPLIMITED = _code(13, "FULLBW_SKIP_APPLIMITED", "123", "full_bw", "bbr_check_full_bw_reached", _PLATEAU,
    "=The sample {bw} is application-limited, so it does not count towards the plateau.",
    bw=BW)
FULLBW_REACHED_LOSS = _code(14, "FULLBW_REACHED_LOSS", "23", "full_bw", "bbr_check_loss_too_high_in_startup", _STARTUP_LOSS,
    "STARTUP ended by loss: {loss_events:loss event|loss events} in the round, {lost} lost of {tx_in_flight} in flight (limit {loss_limit}).",
    loss_events=LOSS_EVENTS, lost=PACKETS, tx_in_flight=PACKETS, loss_limit=PACKETS)
FULLBW_REACHED_ECN = _code(15, "FULLBW_REACHED_ECN", "23", "full_bw", "bbr_check_ecn_too_high_in_startup", _NOT_DRAFT,
    "STARTUP ended by ECN: CE ratio {ce_ratio}/256 for {rounds:round|rounds} in a row.",
    ce_ratio=SHARE, rounds=ROUNDS)
FULLBW_RESET_UNDO = _code(16, "FULLBW_RESET_UNDO", "123", "full_bw", "bbr_undo_cwnd", _RECOVERY,
    "Loss recovery was spurious: plateau baseline {full_bw} forgotten.",
    full_bw=BW)
FULLBW_RESET_RTO = _code(17, "FULLBW_RESET_RTO", "123", "full_bw", "bbr_set_state", _RECOVERY,
    "TCP entered the state Loss: plateau baseline {full_bw} forgotten.",
    full_bw=BW)
FULLBW_RESET_UP = _code(18, "FULLBW_RESET_UP", "3", "full_bw", "bbr_start_bw_probe_up", _UP,
    "PROBE_UP starts a new plateau search from {bw}.",
    bw=BW)
FULLBW_RESET_HI_LIMITED = _code(19, "FULLBW_RESET_HI_LIMITED", "3", "full_bw", "bbr_update_cycle_phase", _UP,
    "Growth is capped by inflight_hi {inflight_hi}, not by the path (cwnd {cwnd}): plateau search restarts from {bw}.",
    inflight_hi=VOLUME, cwnd=PACKETS, bw=BW)
STARTUP_LOSS_EVENT = _code(20, "STARTUP_LOSS_EVENT", "23", "full_bw", "bbr_check_loss_too_high_in_startup", _STARTUP_LOSS,
    "=Loss event {loss_events} of this STARTUP round ({loss_events_limit} end STARTUP if the loss rate is too high).",
    loss_events=COUNT, loss_events_limit=COUNT)
STARTUP_ECN_ROUND = _code(21, "STARTUP_ECN_ROUND", "23", "full_bw", "bbr_check_ecn_too_high_in_startup", _NOT_DRAFT,
    "=CE ratio {ce_ratio}/256 in STARTUP: {rounds:high round|high rounds} in a row.",
    ce_ratio=SHARE, rounds=ROUNDS)

# --- mode -----------------------------------------------------------------------------------------
DRAIN_ENTER = _code(30, "DRAIN_ENTER", "123", "mode", "bbr_check_drain", _DRAIN,
    "The pipe is full: leave STARTUP and drain the queue; target inflight {target}, max bandwidth {max_bw}.",
    target=PACKETS, max_bw=BW)
DRAIN_EXIT_DRAINED = _code(31, "DRAIN_EXIT_DRAINED", "123", "mode", "bbr_check_drain", _DRAIN,
    "The estimate of {in_net:packet|packets} in the network is at or below the target {target}: enter PROBE_BW.",
    in_net=PACKETS, target=PACKETS)
DRAIN_STAY = _code(32, "DRAIN_STAY", "123", "mode", "bbr_check_drain", _DRAIN,
    "=Still draining: {in_net:packet|packets} in the network, target {target}.",
    in_net=PACKETS, target=PACKETS)
PBW_ENTER_PHASE_RANDOM = _code(33, "PBW_ENTER_PHASE_RANDOM", "1", "phase", "bbr_reset_probe_bw_mode", "none (v1)",
    "PROBE_BW starts in cycle phase {cycle_idx} (random draw {draw}).",
    cycle_idx=COUNT, draw=COUNT)
PBW_ENTER_DOWN = _code(34, "PBW_ENTER_DOWN", "23", "phase", "bbr_start_bw_probe_down", _DOWN,
    "PROBE_BW starts in DOWN; next bandwidth probe after {probe_wait_us} or by the Reno-fair round count (starting at {rounds_since_probe}).",
    probe_wait_us=TIME, rounds_since_probe=ROUNDS)
PRTT_ENTER_EXPIRED = _code(35, "PRTT_ENTER_EXPIRED", "123", "mode", "bbr_update_min_rtt", _PRTT,
    "No RTT renewed the minimum of {probe_rtt_min_us} for {window_ms} ms: cut inflight to {probe_rtt_cwnd:packet|packets} (cwnd {cwnd}).",
    probe_rtt_min_us=TIME_OR_UNSET, window_ms=MS, probe_rtt_cwnd=VOLUME, cwnd=PACKETS)
PRTT_SKIP_IDLE = _code(36, "PRTT_SKIP_IDLE", "123", "mode", "bbr_update_min_rtt", _IDLE,
    "=The RTT filter expired, but the flow has just restarted from idle: PROBE_RTT skipped.")
PRTT_DWELL_START = _code(37, "PRTT_DWELL_START", "123", "mode", "bbr_update_min_rtt", _PRTT,
    "Inflight {inflight} is at or below {probe_rtt_cwnd}: the dwell timer starts and ends at jiffy {probe_rtt_done_stamp}.",
    inflight=PACKETS, probe_rtt_cwnd=VOLUME, probe_rtt_done_stamp=STAMP)
PRTT_WAIT_INFLIGHT = _code(38, "PRTT_WAIT_INFLIGHT", "123", "mode", "bbr_update_min_rtt", _PRTT,
    "=Still in PROBE_RTT: inflight {inflight} has not yet fallen to {probe_rtt_cwnd}.",
    inflight=PACKETS, probe_rtt_cwnd=VOLUME)
PRTT_WAIT_ROUND = _code(39, "PRTT_WAIT_ROUND", "123", "mode", "bbr_update_min_rtt", _PRTT,
    "=Still in PROBE_RTT: waiting for a full round at low inflight {inflight}.",
    inflight=PACKETS)
PRTT_WAIT_TIME = _code(40, "PRTT_WAIT_TIME", "123", "mode", "bbr_check_probe_rtt_done", _PRTT,
    "=Still in PROBE_RTT: the dwell time ends at jiffy {probe_rtt_done_stamp}, now {jiffies}.",
    probe_rtt_done_stamp=STAMP, jiffies=JIFFIES)
PRTT_EXIT_PBW = _code(41, "PRTT_EXIT_PBW", "1", "mode", "bbr_check_probe_rtt_done", _PRTT,
    "RTT probe done (min_rtt {min_rtt_us}): cwnd restored {cwnd}->{new_cwnd}, back to PROBE_BW.",
    min_rtt_us=TIME_OR_UNSET, cwnd=PACKETS, new_cwnd=PACKETS)
PRTT_EXIT_CRUISE = _code(42, "PRTT_EXIT_CRUISE", "23", "mode", "bbr_exit_probe_rtt", _PRTT,
    "RTT probe done (min_rtt {min_rtt_us}): cwnd restored {cwnd}->{new_cwnd}, PROBE_BW resumes in CRUISE.",
    min_rtt_us=TIME_OR_UNSET, cwnd=PACKETS, new_cwnd=PACKETS)
PRTT_EXIT_STARTUP = _code(43, "PRTT_EXIT_STARTUP", "123", "mode", "bbr_exit_probe_rtt", _PRTT,
    "RTT probe done (min_rtt {min_rtt_us}) before the pipe was full: cwnd restored {cwnd}->{new_cwnd}, back to STARTUP.",
    min_rtt_us=TIME_OR_UNSET, cwnd=PACKETS, new_cwnd=PACKETS)
PRTT_EXIT_ON_TX_START = _code(44, "PRTT_EXIT_ON_TX_START", "123", "mode", "bbr_cwnd_event", _IDLE,
    "A restart from idle found PROBE_RTT already served (dwell ended at jiffy {probe_rtt_done_stamp}).",
    probe_rtt_done_stamp=STAMP)
IDLE_RESTART = _code(45, "IDLE_RESTART", "123", "idle", "bbr_cwnd_event", _IDLE,
    "Sending restarts from idle: aggregation epoch reset; in PROBE_BW pace at 1.0 x {bw}.",
    bw=BW)
IDLE_RESTART_END = _code(46, "IDLE_RESTART_END", "123", "idle", "bbr_update_min_rtt", _IDLE,
    "Data was acknowledged ({delivered:packet|packets}): the idle restart is over.",
    delivered=PACKETS)

# --- v1 gain cycle and policer --------------------------------------------------------------------
CYC_NEXT_TIME = _code(50, "CYC_NEXT_TIME", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "Phase {cycle_idx} at 1.0x lasted {elapsed_us}, more than min_rtt {min_rtt_us}.",
    cycle_idx=COUNT, elapsed_us=TIME, min_rtt_us=TIME_OR_UNSET)
CYC_NEXT_UP_LOSS = _code(51, "CYC_NEXT_UP_LOSS", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "The 1.25x phase ends: {losses} lost after {elapsed_us}.",
    losses=PACKETS, elapsed_us=TIME)
CYC_NEXT_UP_INFLIGHT = _code(52, "CYC_NEXT_UP_INFLIGHT", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "The 1.25x phase ends after {elapsed_us}: inflight {in_net} reached {target}.",
    elapsed_us=TIME, in_net=PACKETS, target=PACKETS)
CYC_NEXT_DOWN_TIME = _code(53, "CYC_NEXT_DOWN_TIME", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "The 0.75x phase ends: it lasted {elapsed_us}, a full min_rtt {min_rtt_us}.",
    elapsed_us=TIME, min_rtt_us=TIME_OR_UNSET)
CYC_NEXT_DOWN_DRAINED = _code(54, "CYC_NEXT_DOWN_DRAINED", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "The 0.75x phase ends after {elapsed_us}: inflight {in_net} is not above the target {target}.",
    elapsed_us=TIME, in_net=PACKETS, target=PACKETS)
CYC_STAY_UP_WAIT_INFLIGHT = _code(55, "CYC_STAY_UP_WAIT_INFLIGHT", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "=Holding 1.25x until inflight reaches {target} (now {in_net}).",
    target=PACKETS, in_net=PACKETS)
CYC_STAY_TIME = _code(56, "CYC_STAY_TIME", "1", "phase", "bbr_is_next_cycle_phase", "none (v1)",
    "=Phase {cycle_idx} has lasted {elapsed_us}, less than min_rtt {min_rtt_us}.",
    cycle_idx=COUNT, elapsed_us=TIME, min_rtt_us=TIME_OR_UNSET)
LT_SAMPLE_START = _code(60, "LT_SAMPLE_START", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "First loss ({losses}): start long-term rate sampling, in case a policer is at work.",
    losses=PACKETS)
LT_RESET_APPLIMITED = _code(61, "LT_RESET_APPLIMITED", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "Policer sampling dropped after {rounds:round|rounds}: application-limited.",
    rounds=ROUNDS)
LT_RESET_TOO_LONG = _code(62, "LT_RESET_TOO_LONG", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "Policer interval of {rounds:round|rounds} is longer than {limit}: start over.",
    rounds=ROUNDS, limit=ROUNDS)
LT_WAIT_ROUNDS = _code(63, "LT_WAIT_ROUNDS", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "=Policer interval not closed: {rounds} of at least {limit:round|rounds}.",
    rounds=ROUNDS, limit=ROUNDS)
LT_WAIT_LOSS = _code(64, "LT_WAIT_LOSS", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "=Policer interval not closed: no loss on this ACK (round {rounds}).",
    rounds=ROUNDS)
LT_WAIT_RATE = _code(65, "LT_WAIT_RATE", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "=Policer interval not closed: {lost} lost of {delivered} delivered is below 20%.",
    lost=PACKETS, delivered=PACKETS)
LT_WAIT_MS = _code(66, "LT_WAIT_MS", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "=Policer interval not closed: less than a millisecond old ({ms} ms).",
    ms=MS)
LT_RESET_TIME = _code(67, "LT_RESET_TIME", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "Policer interval of {ms} ms overflows its clock: start over.",
    ms=MS)
LT_INTERVAL_FIRST = _code(68, "LT_INTERVAL_FIRST", "1", "policer", "bbr_lt_bw_interval_done", "none (v1)",
    "Lossy interval measured {bw} (reference was {lt_bw}): kept as the new reference.",
    bw=BW, lt_bw=BW)
LT_USE_RATIO = _code(69, "LT_USE_RATIO", "1", "policer", "bbr_lt_bw_interval_done", "none (v1)",
    "Two lossy intervals agree within 1/8 ({bw} and {lt_bw}): policer assumed, pace at {new_lt_bw} for 48 rounds.",
    bw=BW, lt_bw=BW, new_lt_bw=BW)
LT_USE_DIFF = _code(70, "LT_USE_DIFF", "1", "policer", "bbr_lt_bw_interval_done", "none (v1)",
    "Two lossy intervals differ by less than 4 kbit/s ({bw} and {lt_bw}): policer assumed, pace at {new_lt_bw} for 48 rounds.",
    bw=BW, lt_bw=BW, new_lt_bw=BW)
LT_END_48R = _code(71, "LT_END_48R", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "The policer estimate {lt_bw} retires after {rounds:round|rounds}: gain cycling restarts.",
    lt_bw=BW, rounds=ROUNDS)
LT_RESET_UNDO = _code(72, "LT_RESET_UNDO", "1", "policer", "bbr_undo_cwnd", "none (v1)",
    "Policer state dropped: the loss was spurious (estimate was {lt_bw}).",
    lt_bw=BW)
LT_IN_USE = _code(73, "LT_IN_USE", "1", "policer", "bbr_lt_bw_sampling", "none (v1)",
    "=Pacing at the policer's rate {lt_bw}, round {rounds} of 48.",
    lt_bw=BW, rounds=ROUNDS)

# --- v2/v3 PROBE_BW phases ------------------------------------------------------------------------
REFILL_BY_CLOCK = _code(80, "REFILL_BY_CLOCK", "23", "phase", "bbr_check_time_to_probe_bw", _SCALE,
    "{elapsed_us} since DOWN began exceeds the drawn wait of {probe_wait_us}: refill the pipe, then probe.",
    elapsed_us=TIME, probe_wait_us=TIME)
REFILL_BY_RENO_ROUNDS = _code(81, "REFILL_BY_RENO_ROUNDS", "23", "phase", "bbr_check_time_to_probe_bw", _SCALE,
    "{rounds_since_probe:round since the last probe reaches|rounds since the last probe reach} the Reno-fair limit {rounds} (target inflight {target}): refill.",
    rounds_since_probe=ROUNDS, rounds=ROUNDS, target=PACKETS)
REFILL_BY_ECN_CLEAR = _code(82, "REFILL_BY_ECN_CLEAR", "23", "phase", "bbr_check_time_to_probe_bw", _NOT_DRAFT,
    "ECN marks ceased without loss: probe again at once, first step 2^{slope} (inflight_hi {inflight_hi}).",
    slope=COUNT, inflight_hi=VOLUME)
REFILL_BY_SAFE_RISKY_PROBE = _code(83, "REFILL_BY_SAFE_RISKY_PROBE", "23", "phase", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "The cautious probe up to inflight_hi {inflight_hi} did no harm: probe again at once.",
    inflight_hi=VOLUME)
UP_ENTER = _code(84, "UP_ENTER", "23", "phase", "bbr_update_cycle_phase", _UP,
    "One full round in REFILL is over: probe upwards at 1.25x (cwnd {cwnd}, inflight_hi {inflight_hi}).",
    cwnd=PACKETS, inflight_hi=VOLUME)
DOWN_BY_RISK = _code(85, "DOWN_BY_RISK", "23", "phase", "bbr_update_cycle_phase", _UP,
    "The previous probe went too high and inflight {in_net} is back at inflight_hi {inflight_hi}: stop early.",
    in_net=PACKETS, inflight_hi=VOLUME)
DOWN_BY_QUEUE = _code(86, "DOWN_BY_QUEUE", "2", "phase", "bbr_update_cycle_phase", _UP,
    "Inflight {in_net} has reached {target}, 1.25 BDP and room for TSO bursts, after a min_rtt: a queue is building, stop probing.",
    in_net=PACKETS, target=PACKETS)
DOWN_BY_PLATEAU = _code(87, "DOWN_BY_PLATEAU", "3", "phase", "bbr_update_cycle_phase", _UP,
    "Bandwidth stopped growing at {full_bw} for {full_bw_cnt:round|rounds}: the probe is finished.",
    full_bw=BW, full_bw_cnt=ROUNDS)
DOWN_BY_LOSS = _code(88, "DOWN_BY_LOSS", "23", "phase", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "Too much loss while probing: {lost} lost of {tx_in_flight} in flight (limit {loss_limit}).",
    lost=PACKETS, tx_in_flight=PACKETS, loss_limit=PACKETS)
DOWN_BY_ECN = _code(89, "DOWN_BY_ECN", "23", "phase", "bbr_handle_inflight_too_high", _NOT_DRAFT,
    "Too many CE marks while probing: {delivered_ce} of {delivered} delivered (limit {ecn_limit}).",
    delivered_ce=PACKETS, delivered=PACKETS, ecn_limit=PACKETS)
DOWN_BY_LOST_SKB = _code(90, "DOWN_BY_LOST_SKB", "23", "phase", "bbr_skb_marked_lost", _LOSS_PROBE,
    "A packet marked lost pushed the loss rate over the limit: {lost} lost of {tx_in_flight} in flight (limit {loss_limit}).",
    lost=PACKETS, tx_in_flight=PACKETS, loss_limit=PACKETS)
DOWN_BY_TLP = _code(91, "DOWN_BY_TLP", "3", "phase", "bbr_run_loss_probe_recovery", _LOSS_PROBE,
    "A tail loss probe repaired a loss while probing ({lost} lost of {tx_in_flight}, limit {loss_limit}).",
    lost=PACKETS, tx_in_flight=PACKETS, loss_limit=PACKETS)
CRUISE_ENTER = _code(92, "CRUISE_ENTER", "23", "phase", "bbr_check_time_to_cruise", _CRUISE,
    "Inflight {in_net} is under both the headroom bound {headroom} and the BDP {bdp}: cruise.",
    in_net=PACKETS, headroom=VOLUME, bdp=PACKETS)
DOWN_STAY_HEADROOM = _code(93, "DOWN_STAY_HEADROOM", "23", "phase", "bbr_check_time_to_cruise", _DOWN,
    "=Still draining: inflight {in_net} is above inflight_hi less headroom, {headroom}.",
    in_net=PACKETS, headroom=VOLUME)
DOWN_STAY_BDP = _code(94, "DOWN_STAY_BDP", "23", "phase", "bbr_check_time_to_cruise", _DOWN,
    "=Still draining: inflight {in_net} is above the BDP {bdp}.",
    in_net=PACKETS, bdp=PACKETS)
ACKPHASE_FEEDBACK = _code(95, "ACKPHASE_FEEDBACK", "23", "round", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "ACKs now reflect what the probe sent.")
ACKPHASE_END = _code(96, "ACKPHASE_END", "23", "round", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "The last feedback on the probe has arrived.")
BWHI_ADVANCE = _code(97, "BWHI_ADVANCE", "23", "bw", "bbr_advance_max_bw_filter", _MAXBW,
    "Bandwidth window rotates: {bw_hi_1} replaces {bw_hi_0} as the reference.",
    bw_hi_1=BW, bw_hi_0=BW)
BWHI_KEEP_EMPTY = _code(98, "BWHI_KEEP_EMPTY", "23", "bw", "bbr_advance_max_bw_filter", _MAXBW,
    "=The current window holds no bandwidth sample: {bw_hi_0} stays the reference.",
    bw_hi_0=BW)
BWHI_KEEP_APPLIMITED = _code(99, "BWHI_KEEP_APPLIMITED", "23", "bw", "bbr_adapt_upper_bounds", _MAXBW,
    "=The probe's last sample is application-limited: the bandwidth window does not rotate (max {max_bw}).",
    max_bw=BW)
BWHI_SAMPLE = _code(100, "BWHI_SAMPLE", "123", "bw", "bbr_update_congestion_signals", _MAXBW,
    "Sample {bw} enters the maximum filter ({max_bw} before).",
    bw=BW, max_bw=BW)
BWHI_SKIP_APPLIMITED = _code(101, "BWHI_SKIP_APPLIMITED", "123", "bw", "bbr_update_congestion_signals", _MAXBW,
    "=Application-limited sample {bw} is below the maximum {max_bw}: ignored.",
    bw=BW, max_bw=BW)
UP_STAY = _code(102, "UP_STAY", "23", "phase", "bbr_update_cycle_phase", _UP,
    "=Probing goes on: inflight {in_net}, cwnd {cwnd}, inflight_hi {inflight_hi}.",
    in_net=PACKETS, cwnd=PACKETS, inflight_hi=VOLUME)
REFILL_STAY = _code(103, "REFILL_STAY", "23", "phase", "bbr_update_cycle_phase", _REFILL,
    "=Refilling: the round is not over yet (inflight {in_net}).",
    in_net=PACKETS)
CRUISE_STAY = _code(104, "CRUISE_STAY", "23", "phase", "bbr_check_time_to_probe_bw", _SCALE,
    "=Not yet time to probe: {elapsed_us} of {probe_wait_us} waited, {rounds_since_probe} of {rounds:round|rounds}.",
    elapsed_us=TIME, probe_wait_us=TIME, rounds_since_probe=ROUNDS, rounds=ROUNDS)
LOSS_RIDES_PROBE = _code(105, "LOSS_RIDES_PROBE", "23", "phase", "bbr_skb_marked_lost", _LOSS_PROBE,
    "=A packet lost while probing does not end the probe: {lost} lost of {tx_in_flight} (limit {loss_limit}).",
    lost=PACKETS, tx_in_flight=PACKETS, loss_limit=PACKETS)
CRUISE_AFTER_PRTT = _code(106, "CRUISE_AFTER_PRTT", "23", "phase", "bbr_exit_probe_rtt", _PRTT,
    "PROBE_RTT is taken to have emptied the queue: cruise without draining; next probe after {probe_wait_us}.",
    probe_wait_us=TIME)

# --- inflight_hi ----------------------------------------------------------------------------------
HI_SET_STARTUP_EXIT = _code(120, "HI_SET_STARTUP_EXIT", "23", "inflight_hi", "bbr_handle_queue_too_high_in_startup", _STARTUP_LOSS,
    "inflight_hi first set {old}->{new} (BDP {bdp}, inflight_latest {inflight_latest}).",
    old=VOLUME, new=VOLUME, bdp=PACKETS, inflight_latest=PACKETS)
HI_CUT_RS_LOSS = _code(121, "HI_CUT_RS_LOSS", "23", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "inflight_hi {old}->{new}: the probe with {tx_in_flight} in flight lost too much; floor 0.7 x target {target}.",
    old=VOLUME, new=VOLUME, tx_in_flight=PACKETS, target=PACKETS)
HI_CUT_RS_ECN = _code(122, "HI_CUT_RS_ECN", "23", "inflight_hi", "bbr_handle_inflight_too_high", _NOT_DRAFT,
    "inflight_hi {old}->{new}: the probe with {tx_in_flight} in flight drew too many CE marks; floor 0.7 x target {target}.",
    old=VOLUME, new=VOLUME, tx_in_flight=PACKETS, target=PACKETS)
HI_CUT_LOST_SKB = _code(123, "HI_CUT_LOST_SKB", "23", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "inflight_hi {old}->{new}: loss crossed the limit {prefix:packet|packets} into the flight; floor 0.7 x target {target}.",
    old=VOLUME, new=VOLUME, prefix=PACKETS, target=PACKETS)
HI_CUT_TLP = _code(124, "HI_CUT_TLP", "3", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "inflight_hi {old}->{new}: a tail loss repaired by TLP with {tx_in_flight} in flight; floor 0.7 x target {target}.",
    old=VOLUME, new=VOLUME, tx_in_flight=PACKETS, target=PACKETS)
HI_CUT_RAISED = _code(125, "HI_CUT_RAISED", "23", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "The 'cut' raised inflight_hi {old}->{new}: {tx_in_flight} in flight was above the old bound (target {target}).",
    old=VOLUME, new=VOLUME, tx_in_flight=PACKETS, target=PACKETS)
HI_CUT_SAME = _code(126, "HI_CUT_SAME", "23", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "=Too high, but the cut arrives at the old bound {old} ({tx_in_flight} in flight, target {target}).",
    old=VOLUME, tx_in_flight=PACKETS, target=PACKETS)
HI_NOCUT_APPLIMITED = _code(127, "HI_NOCUT_APPLIMITED", "23", "inflight_hi", "bbr_handle_inflight_too_high", _LOSS_PROBE,
    "=Too high with {tx_in_flight} in flight, but the sample was application-limited: inflight_hi {inflight_hi} stays, the probe still stops.",
    tx_in_flight=PACKETS, inflight_hi=VOLUME)
HI_NOCUT_NOT_PROBE = _code(128, "HI_NOCUT_NOT_PROBE", "23", "inflight_hi", "bbr_adapt_upper_bounds", _LOSS_NOPROBE,
    "=Too high ({lost} lost of {tx_in_flight}), but not from a bandwidth probe or already reacted to: inflight_hi {inflight_hi} stays.",
    lost=PACKETS, tx_in_flight=PACKETS, inflight_hi=VOLUME)
HI_LOST_INFINITY = _code(129, "HI_LOST_INFINITY", "23", "inflight_hi", "bbr_inflight_hi_from_lost_skb", _LOSS_PROBE,
    "Kernel bookkeeping anomaly ({tx_in_flight} in flight, {lost} lost, skb of {pcount}): the bound became unset.",
    tx_in_flight=PACKETS, lost=PACKETS, pcount=PACKETS)
HI_UNSET = _code(130, "HI_UNSET", "23", "inflight_hi", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "=No upper bound yet, nothing to raise ({tx_in_flight} in flight was safe).",
    tx_in_flight=PACKETS)
HI_RAISE_OBSERVED = _code(131, "HI_RAISE_OBSERVED", "23", "inflight_hi", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "inflight_hi {old}->{new}: that many packets were in flight without excess loss.",
    old=VOLUME, new=VOLUME)
HI_RAISE_SLOPE = _code(132, "HI_RAISE_SLOPE", "23", "inflight_hi", "bbr_probe_inflight_hi_upward", _UP,
    "inflight_hi {old}->{new}: {acks} acknowledged at one step per {cnt}.",
    old=VOLUME, new=VOLUME, acks=PACKETS, cnt=PACKETS)
HI_HOLD_NOT_CWND_LIMITED = _code(133, "HI_HOLD_NOT_CWND_LIMITED", "23", "inflight_hi", "bbr_probe_inflight_hi_upward", _UP,
    "=inflight_hi {inflight_hi} not grown: sending is not limited by cwnd ({cwnd}).",
    inflight_hi=VOLUME, cwnd=PACKETS)
HI_HOLD_CWND_BELOW_HI = _code(134, "HI_HOLD_CWND_BELOW_HI", "23", "inflight_hi", "bbr_probe_inflight_hi_upward", _UP,
    "=inflight_hi {inflight_hi} not grown: cwnd {cwnd} is still below it.",
    inflight_hi=VOLUME, cwnd=PACKETS)
HI_HOLD_ACCUMULATING = _code(135, "HI_HOLD_ACCUMULATING", "23", "inflight_hi", "bbr_probe_inflight_hi_upward", _UP,
    "={acks} of {cnt:packet|packets} acknowledged towards the next +1 on inflight_hi {inflight_hi}.",
    acks=PACKETS, cnt=PACKETS, inflight_hi=VOLUME)
HI_SLOPE_DOUBLE = _code(136, "HI_SLOPE_DOUBLE", "23", "inflight_hi", "bbr_raise_inflight_hi_slope", _UP,
    "=+1 on inflight_hi per {cnt:packet|packets} acknowledged: round {round} of the probe, and growth doubles in each.",
    cnt=PACKETS, round=ROUNDS)
HI_REFILL_ADD = _code(137, "HI_REFILL_ADD", "2", "inflight_hi", "bbr_start_bw_probe_refill", _NOT_DRAFT,
    "inflight_hi {old}->{new}: refill_add_inc adds {inc} at REFILL.",
    old=VOLUME, new=VOLUME, inc=PACKETS)
HI_UNDO = _code(138, "HI_UNDO", "23", "inflight_hi", "bbr_undo_cwnd", _RECOVERY,
    "Spurious loss: inflight_hi restored {old}->{new}.",
    old=VOLUME, new=VOLUME)
HI_UNDO_NOOP = _code(139, "HI_UNDO_NOOP", "23", "inflight_hi", "bbr_undo_cwnd", _RECOVERY,
    "=Spurious loss, but inflight_hi {inflight_hi} is not restored: the saved value {undo_inflight_hi} is no higher (it was saved after any cut).",
    inflight_hi=VOLUME, undo_inflight_hi=VOLUME)
HI_SAFE = _code(140, "HI_SAFE", "23", "inflight_hi", "bbr_adapt_upper_bounds", _LOSS_PROBE,
    "={tx_in_flight} in flight was safe and is not above inflight_hi {inflight_hi}: nothing to raise.",
    tx_in_flight=PACKETS, inflight_hi=VOLUME)
HI_KEEP_SKB_UNUSABLE = _code(141, "HI_KEEP_SKB_UNUSABLE", "23", "inflight_hi", "bbr_skb_marked_lost", _LOSS_PROBE,
    "=The lost packet had been SACKed before (reneging): its sample is unusable, inflight_hi {inflight_hi} stays.",
    inflight_hi=VOLUME)
HI_KEEP_SKB_NOT_PROBE = _code(142, "HI_KEEP_SKB_NOT_PROBE", "23", "inflight_hi", "bbr_skb_marked_lost", _LOSS_NOPROBE,
    "=A packet was lost outside a bandwidth probe: inflight_hi {inflight_hi} is not touched.",
    inflight_hi=VOLUME)

# --- short-term bounds and congestion signals -----------------------------------------------------
LO_SKIP_PROBING = _code(160, "LO_SKIP_PROBING", "23", "inflight_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "=Congestion in this round (loss {loss_in_round}, ECN {ecn_in_round}) is ignored for the short-term bounds: the flow is probing.",
    loss_in_round=FLAG, ecn_in_round=FLAG)
BWLO_INIT = _code(161, "BWLO_INIT", "23", "bw_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "bw_lo starts from the maximum bandwidth {max_bw}.",
    max_bw=BW)
INFLO_INIT = _code(162, "INFLO_INIT", "23", "inflight_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "inflight_lo starts from cwnd {cwnd}.",
    cwnd=PACKETS)
BWLO_CUT = _code(163, "BWLO_CUT", "23", "bw_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "bw_lo {old_bw}->{new_bw} (0.7x; latest delivery rate {bw_latest}).",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET, bw_latest=BW_OR_UNSET)
BWLO_HELD_LATEST = _code(164, "BWLO_HELD_LATEST", "23", "bw_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "bw_lo {old_bw}->{new_bw}: held at the latest delivery rate, which is above 0.7x.",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET)
INFLO_CUT_LOSS = _code(165, "INFLO_CUT_LOSS", "23", "inflight_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "inflight_lo {old}->{new} after loss (0.7x; delivered in the last round {inflight_latest}).",
    old=VOLUME, new=VOLUME, inflight_latest=PACKETS)
INFLO_HELD_LATEST = _code(166, "INFLO_HELD_LATEST", "23", "inflight_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "inflight_lo {old}->{new} after loss: held at what the last round delivered.",
    old=VOLUME, new=VOLUME)
INFLO_CUT_ECN = _code(167, "INFLO_CUT_ECN", "23", "inflight_lo", "bbr_adapt_lower_bounds", _NOT_DRAFT,
    "inflight_lo {old}->{new}: ECN alpha {ecn_alpha}/256.",
    old=VOLUME, new=VOLUME, ecn_alpha=SHARE)
INFLO_SET_RTO = _code(168, "INFLO_SET_RTO", "23", "inflight_lo", "bbr_set_state", _RECOVERY,
    "TCP entered the state Loss: inflight_lo starts from {new}, the window before it (cwnd now {cwnd}).",
    new=VOLUME, cwnd=PACKETS)
INFLO_CAP_HI = _code(169, "INFLO_CAP_HI", "23", "inflight_lo", "bbr_start_bw_probe_cruise", _CRUISE,
    "inflight_lo {old}->{new}: capped by inflight_hi on entering CRUISE.",
    old=VOLUME, new=VOLUME)
LO_RESET_REFILL = _code(170, "LO_RESET_REFILL", "23", "inflight_lo", "bbr_start_bw_probe_refill", _REFILL,
    "Short-term bounds cleared before probing (bw_lo was {bw_lo}, inflight_lo {inflight_lo}).",
    bw_lo=BW_OR_UNSET, inflight_lo=VOLUME)
LO_RESET_PRTT_EXIT = _code(171, "LO_RESET_PRTT_EXIT", "23", "inflight_lo", "bbr_exit_probe_rtt", _PRTT,
    "Short-term bounds cleared after PROBE_RTT (bw_lo was {bw_lo}, inflight_lo {inflight_lo}).",
    bw_lo=BW_OR_UNSET, inflight_lo=VOLUME)
LO_UNDO = _code(172, "LO_UNDO", "23", "inflight_lo", "bbr_undo_cwnd", _RECOVERY,
    "Spurious loss: short-term bounds restored (bw_lo {old_bw}->{new_bw}, inflight_lo {old}->{new}).",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET, old=VOLUME, new=VOLUME)
LOSSROUND_START = _code(173, "LOSSROUND_START", "23", "round", "bbr_update_latest_delivery_signals", _LOSS_NOPROBE,
    "=A loss round ends at {delivered} delivered (loss in it: {loss_in_round}).",
    delivered=PACKETS, loss_in_round=FLAG)
LOSSROUND_MARK = _code(174, "LOSSROUND_MARK", "23", "round", "bbr_skb_marked_lost", _LOSS_NOPROBE,
    "First loss of the round: it counts until the ACK of a packet sent after what is delivered by now ({delivered:packet|packets}).",
    delivered=PACKETS)
ECN_ELIGIBLE = _code(175, "ECN_ELIGIBLE", "23", "ecn", "bbr_update_ecn_alpha", _NOT_DRAFT,
    "ECN response enabled (min_rtt {min_rtt_us}).",
    min_rtt_us=TIME_OR_UNSET)
ECN_ALPHA = _code(176, "ECN_ALPHA", "23", "ecn", "bbr_update_ecn_alpha", _NOT_DRAFT,
    "ECN alpha {old}->{new} (CE ratio {ce_ratio}/256).",
    old=SHARE, new=SHARE, ce_ratio=SHARE)
FASTPATH_SKIP = _code(177, "FASTPATH_SKIP", "23", "fast_path", "bbr_run_fast_path", _NOT_DRAFT,
    "=Application-limited fast path: sample {bw} is below the maximum {max_bw}, model and control stay.",
    bw=BW, max_bw=BW)
FASTPATH_CONTROL_ONLY = _code(178, "FASTPATH_CONTROL_ONLY", "23", "fast_path", "bbr_run_fast_path", _NOT_DRAFT,
    "=Application-limited fast path: model stays, control is updated because mode, min_rtt or phase changed.")
LO_NO_CONGESTION = _code(179, "LO_NO_CONGESTION", "23", "inflight_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "=No loss or CE mark in this round: short-term bounds stay (bw_lo {bw_lo}, inflight_lo {inflight_lo}).",
    bw_lo=BW_OR_UNSET, inflight_lo=VOLUME)
BWLO_FLOOR = _code(180, "BWLO_FLOOR", "3", "bw_lo", "bbr_adapt_lower_bounds", _LOSS_NOPROBE,
    "bw_lo {old_bw}->{new_bw}: it may not be zero.",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET)
BWLO_UNDO = _code(181, "BWLO_UNDO", "23", "bw_lo", "bbr_undo_cwnd", _RECOVERY,
    "Spurious loss: bw_lo restored {old_bw}->{new_bw}.",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET)
BWLO_RESET_REFILL = _code(182, "BWLO_RESET_REFILL", "23", "bw_lo", "bbr_start_bw_probe_refill", _REFILL,
    "bw_lo {bw_lo} cleared before probing.",
    bw_lo=BW_OR_UNSET)
BWLO_RESET_PRTT_EXIT = _code(183, "BWLO_RESET_PRTT_EXIT", "23", "bw_lo", "bbr_exit_probe_rtt", _PRTT,
    "bw_lo {bw_lo} cleared after PROBE_RTT.",
    bw_lo=BW_OR_UNSET)
SIGNALS_RESET = _code(184, "SIGNALS_RESET", "23", "round", "bbr_reset_congestion_signals", _LOSS_NOPROBE,
    "=Loss and ECN signals of the round are reset (bw_latest {bw_latest}, inflight_latest {inflight_latest}).",
    bw_latest=BW_OR_UNSET, inflight_latest=PACKETS)

# --- recovery, cwnd, pacing, min_rtt, aggregation -------------------------------------------------
CONSERVE_START = _code(200, "CONSERVE_START", "1", "recovery", "bbr_set_cwnd_to_recover_or_restore", _RECOVERY,
    "Recovery begins: packet conservation for one round, cwnd {old}->{new} (inflight {inflight} + acked {acked}).",
    old=PACKETS, new=PACKETS, inflight=PACKETS, acked=PACKETS)
CONSERVE_END_ROUND = _code(201, "CONSERVE_END_ROUND", "1", "recovery", "bbr_update_bw", _RECOVERY,
    "The round of packet conservation is over ({delivered} delivered).",
    delivered=PACKETS)
CONSERVE_END_EXIT = _code(202, "CONSERVE_END_EXIT", "1", "recovery", "bbr_set_cwnd_to_recover_or_restore", _RECOVERY,
    "Recovery was left before its first round ended: packet conservation over.")
RECOVERY_RESTORE = _code(203, "RECOVERY_RESTORE", "123", "cwnd", "bbr_set_state", _RECOVERY,
    "Recovery over: cwnd {old}->{new} (saved {prior_cwnd}).",
    old=PACKETS, new=PACKETS, prior_cwnd=PACKETS)
PRIORCWND_SAVE = _code(204, "PRIORCWND_SAVE", "123", "recovery", "bbr_save_cwnd", _RECOVERY,
    "cwnd {new} saved, to be restored later (saved before: {old}).",
    new=PACKETS, old=PACKETS)
PRIORCWND_MAX = _code(205, "PRIORCWND_MAX", "123", "recovery", "bbr_save_cwnd", _RECOVERY,
    "=Already in recovery or PROBE_RTT: the larger of cwnd {cwnd} and the saved {old} stays saved.",
    cwnd=PACKETS, old=PACKETS)
CWND_LOSS_DEDUCT = _code(206, "CWND_LOSS_DEDUCT", "1", "cwnd", "bbr_set_cwnd_to_recover_or_restore", _RECOVERY,
    "{losses} lost deducted from cwnd: {old}->{new}.",
    losses=PACKETS, old=PACKETS, new=PACKETS)
CWND_CONSERVE = _code(207, "CWND_CONSERVE", "1", "cwnd", "bbr_set_cwnd_to_recover_or_restore", _RECOVERY,
    "=Packet conservation holds cwnd at {new}, no less than inflight {inflight} + acked {acked}.",
    new=PACKETS, inflight=PACKETS, acked=PACKETS)
CWND_GROW = _code(208, "CWND_GROW", "123", "cwnd", "bbr_set_cwnd", _CWND,
    "cwnd {old}->{new}: {acked} acknowledged, target {target}.",
    old=PACKETS, new=PACKETS, acked=PACKETS, target=PACKETS)
CWND_TO_TARGET = _code(209, "CWND_TO_TARGET", "123", "cwnd", "bbr_set_cwnd", _CWND,
    "cwnd {old}->{new}: the target (BDP {bdp} + aggregation {agg}, with room for TSO bursts).",
    old=PACKETS, new=PACKETS, bdp=PACKETS, agg=PACKETS)
CWND_HOLD = _code(210, "CWND_HOLD", "123", "cwnd", "bbr_set_cwnd", _CWND,
    "=STARTUP holds cwnd {cwnd}: it is not below the target {target}.",
    cwnd=PACKETS, target=PACKETS)
CWND_NO_ACK = _code(211, "CWND_NO_ACK", "123", "cwnd", "bbr_set_cwnd", _CWND,
    "=Nothing was acknowledged: cwnd {cwnd} only meets its caps.",
    cwnd=PACKETS)
CWND_FLOOR4 = _code(212, "CWND_FLOOR4", "123", "cwnd", "bbr_set_cwnd", "Minimum cwnd for Pipelining",
    "cwnd {old}->{new}: never below the minimum.",
    old=PACKETS, new=PACKETS)
CWND_CLAMP = _code(213, "CWND_CLAMP", "123", "cwnd", "bbr_set_cwnd", _CWND,
    "cwnd {old}->{new}: snd_cwnd_clamp.",
    old=PACKETS, new=PACKETS)
CWND_PRTT_CAP = _code(214, "CWND_PRTT_CAP", "123", "cwnd", "bbr_set_cwnd", "Modulating cwnd in ProbeRTT",
    "cwnd {old}->{new}: PROBE_RTT cap.",
    old=PACKETS, new=PACKETS)
CWND_CAP_HI = _code(215, "CWND_CAP_HI", "23", "cwnd", "bbr_bound_cwnd_for_inflight_model", _BOUND,
    "cwnd {old}->{new}: limited by inflight_hi.",
    old=PACKETS, new=PACKETS)
CWND_CAP_HEADROOM = _code(216, "CWND_CAP_HEADROOM", "23", "cwnd", "bbr_bound_cwnd_for_inflight_model", _BOUND,
    "cwnd {old}->{new}: limited by inflight_hi {inflight_hi} less headroom.",
    old=PACKETS, new=PACKETS, inflight_hi=VOLUME)
CWND_CAP_LO = _code(217, "CWND_CAP_LO", "23", "cwnd", "bbr_bound_cwnd_for_inflight_model", _BOUND,
    "cwnd {old}->{new}: limited by inflight_lo.",
    old=PACKETS, new=PACKETS)
CWND_CAP_FLOOR = _code(218, "CWND_CAP_FLOOR", "23", "cwnd", "bbr_bound_cwnd_for_inflight_model", _BOUND,
    "cwnd {old}->{new}: the bound is below the minimum window.",
    old=PACKETS, new=PACKETS)
CWND_USAGE = _code(219, "CWND_USAGE", "2", "cwnd", "bbr_set_cwnd", _NOT_DRAFT,
    "cwnd {old}->{new}: not beyond twice what was in use.",
    old=PACKETS, new=PACKETS)
PACE_SET = _code(220, "PACE_SET", "123", "pacing", "bbr_set_pacing_rate", _PACING,
    "Pacing {old_rate}->{new_rate} = {bw} x {gain} x 0.99.",
    old_rate=RATE, new_rate=RATE, bw=BW, gain=GAIN)
PACE_HOLD_STARTUP = _code(221, "PACE_HOLD_STARTUP", "123", "pacing", "bbr_set_pacing_rate", _PACING,
    "=Pacing stays {old_rate}: until the pipe is full it is never lowered (computed {rate}).",
    old_rate=RATE, rate=RATE)
PACE_FIRST_RTT = _code(222, "PACE_FIRST_RTT", "123", "pacing", "bbr_init_pacing_rate_from_rtt", _PACING,
    "Initial pacing {new_rate} from cwnd {cwnd} and RTT {rtt_us}.",
    new_rate=RATE, cwnd=PACKETS, rtt_us=TIME)
MINRTT_NEW = _code(223, "MINRTT_NEW", "123", "min_rtt", "bbr_update_min_rtt", _MINRTT,
    "min_rtt {old_us}->{new_us}: a lower sample.",
    old_us=TIME_OR_UNSET, new_us=TIME_OR_UNSET)
MINRTT_EXPIRED_REPLACED = _code(224, "MINRTT_EXPIRED_REPLACED", "123", "min_rtt", "bbr_update_min_rtt", _MINRTT,
    "min_rtt {old_us}->{new_us}: the old value expired.",
    old_us=TIME_OR_UNSET, new_us=TIME_OR_UNSET)
MINRTT_SKIP_DELAYED_ACK = _code(225, "MINRTT_SKIP_DELAYED_ACK", "123", "min_rtt", "bbr_update_min_rtt", _MINRTT,
    "=The RTT filter expired, but this sample {rtt_us} belongs to a delayed ACK: not taken (min_rtt {min_rtt_us}).",
    rtt_us=TIME, min_rtt_us=TIME_OR_UNSET)
PRTT_MIN_NEW = _code(226, "PRTT_MIN_NEW", "23", "min_rtt", "bbr_update_min_rtt", _MINRTT,
    "probe_rtt_min_us {old_us}->{new_us}: the next PROBE_RTT is put off.",
    old_us=TIME_OR_UNSET, new_us=TIME_OR_UNSET)
AGG_EPOCH_RESET = _code(227, "AGG_EPOCH_RESET", "123", "extra_acked", "bbr_update_ack_aggregation", _AGG,
    "=ACKs arrive no faster than expected ({ack_epoch_acked} acked, {expected} expected): new aggregation epoch.",
    ack_epoch_acked=PACKETS, expected=PACKETS)
AGG_NEW_MAX = _code(228, "AGG_NEW_MAX", "123", "extra_acked", "bbr_update_ack_aggregation", _AGG,
    "extra_acked {old}->{new}: ACKs came in a burst.",
    old=PACKETS, new=PACKETS)
AGG_WINDOW_FLIP = _code(229, "AGG_WINDOW_FLIP", "123", "extra_acked", "bbr_update_ack_aggregation", _AGG,
    "The aggregation window rotates after {rounds:round|rounds} (dropped {old}).",
    rounds=ROUNDS, old=PACKETS)
CWND_UNDO = _code(230, "CWND_UNDO", "23", "cwnd", "bbr_undo_cwnd", _RECOVERY,
    "Spurious loss: cwnd {old}->{new}.",
    old=PACKETS, new=PACKETS)
MINRTT_KEEP_NO_SAMPLE = _code(231, "MINRTT_KEEP_NO_SAMPLE", "123", "min_rtt", "bbr_update_min_rtt", _MINRTT,
    "=This ACK carries no RTT sample (min_rtt {min_rtt_us}).",
    min_rtt_us=TIME_OR_UNSET)
CWND_KEEP_RECOVERY = _code(232, "CWND_KEEP_RECOVERY", "123", "cwnd", "bbr_set_state", _RECOVERY,
    "=Congestion state {old_state}->{new_state}: BBR keeps cwnd {cwnd} (its model answers loss elsewhere).",
    old_state=CA_STATE, new_state=CA_STATE, cwnd=PACKETS)

# --- PLB, and what the TCP core does behind BBR's back --------------------------------------------
PLB_CONGESTED_ROUND = _code(250, "PLB_CONGESTED_ROUND", "3", "plb", "tcp_plb_update_state", _NOT_DRAFT,
    "Congested round {rounds}: CE ratio {ce_ratio}/256.",
    rounds=ROUNDS, ce_ratio=SHARE)
PLB_CLEAR = _code(251, "PLB_CLEAR", "3", "plb", "tcp_plb_update_state", _NOT_DRAFT,
    "Round without congestion (CE ratio {ce_ratio}/256): PLB count restarts.",
    ce_ratio=SHARE)
PLB_REHASH = _code(252, "PLB_REHASH", "3", "plb", "tcp_plb_check_rehash", _NOT_DRAFT,
    "PLB asks for another path after {rounds:congested round|congested rounds}.",
    rounds=ROUNDS)
PLB_PAUSED = _code(253, "PLB_PAUSED", "3", "plb", "tcp_plb_check_rehash", _NOT_DRAFT,
    "=PLB would repath after {rounds:round|rounds}, but pauses until jiffy {pause_until}.",
    rounds=ROUNDS, pause_until=STAMP)
PLB_PAUSE_RTO = _code(254, "PLB_PAUSE_RTO", "3", "plb", "tcp_plb_update_state_upon_rto", _NOT_DRAFT,
    "TCP entered the state Loss: PLB pauses until jiffy {pause_until}.",
    pause_until=STAMP)
CORE_RTO_COLLAPSE = _code(260, "CORE_RTO_COLLAPSE", "123", "core", "tcp_enter_loss", "none (TCP core)",
    "TCP, not BBR, collapsed cwnd {old}->{new} on a retransmission timeout (inflight + 1).",
    old=PACKETS, new=PACKETS)
CORE_UNDO = _code(261, "CORE_UNDO", "123", "core", "tcp_undo_cwnd_reduction", "none (TCP core)",
    "TCP stored what undo returned: cwnd {old}->{new}.",
    old=PACKETS, new=PACKETS)
CORE_MTU_PROBE = _code(262, "CORE_MTU_PROBE", "123", "core", "tcp_mtu_probe", "none (TCP core)",
    "TCP, not BBR, changed cwnd {old}->{new} for an MTU probe.",
    old=PACKETS, new=PACKETS)
CORE_OTHER = _code(263, "CORE_OTHER", "123", "core", "TCP core or setsockopt", "none (TCP core)",
    "TCP or the application, not BBR, changed cwnd {old}->{new}.",
    old=PACKETS, new=PACKETS)
CORE_PACING = _code(264, "CORE_PACING", "123", "core", "sock_setsockopt", "none (TCP core)",
    "The application (SO_MAX_PACING_RATE), not BBR, changed pacing {old_rate}->{new_rate}.",
    old_rate=RATE, new_rate=RATE)

# --- variants of BBR (variants/): no kernel takes these -------------------------------------------
CYC_STAY_DOWN_UNTIL_DRAINED = _code(280, "CYC_STAY_DOWN_UNTIL_DRAINED", "", "phase", "BBR', BBRPlus", _NOT_DRAFT,
    "=Holding 0.75x until inflight falls to {target} (now {in_net}), whatever the time.",
    target=PACKETS, in_net=PACKETS)
CYC_BEGIN_RANDOM_LENGTH = _code(281, "CYC_BEGIN_RANDOM_LENGTH", "", "phase", "BBRPlus", _NOT_DRAFT,
    "A cycle begins at 1.25x, {elapsed_us} after the last one: it is to last {cycle_len} x min_rtt {min_rtt_us}.",
    elapsed_us=TIME, cycle_len=COUNT, min_rtt_us=TIME_OR_UNSET)
RTPROP_WITH_DEVIATION = _code(282, "RTPROP_WITH_DEVIATION", "", "min_rtt", "BBR+", _NOT_DRAFT,
    "RTprop {old_us}->{new_us}: min_rtt {min_rtt_us} and {added_us} of the RTT's deviation.",
    old_us=TIME_OR_UNSET, new_us=TIME_OR_UNSET, min_rtt_us=TIME_OR_UNSET, added_us=TIME)
PRTT_ENTER_DELAY = _code(283, "PRTT_ENTER_DELAY", "", "mode", "Delay-BBR", _NOT_DRAFT,
    "The smoothed RTT {srtt_us} is more than 1.2 x {base_us}, the lowest since the last back-off: back off in PROBE_RTT.",
    srtt_us=TIME, base_us=TIME)
PRTT_WAIT_BELOW_BDP = _code(284, "PRTT_WAIT_BELOW_BDP", "", "mode", "Delay-BBR", _NOT_DRAFT,
    "=Still backing off: inflight {inflight} is not yet below the BDP {bdp}.",
    inflight=PACKETS, bdp=PACKETS)
PRTT_EXIT_BELOW_BDP = _code(285, "PRTT_EXIT_BELOW_BDP", "", "mode", "Delay-BBR", _NOT_DRAFT,
    "Inflight {inflight} is below the BDP {bdp}: the back-off is over, cwnd restored {cwnd}->{new_cwnd}.",
    inflight=PACKETS, bdp=PACKETS, cwnd=PACKETS, new_cwnd=PACKETS)
BWLO_CUT_ECN = _code(286, "BWLO_CUT_ECN", "", "bw_lo", "BBRv2-EXP", _NOT_DRAFT,
    "bw_lo {old_bw}->{new_bw}: ECN alpha {ecn_alpha}/256.",
    old_bw=BW_OR_UNSET, new_bw=BW_OR_UNSET, ecn_alpha=SHARE)
BWHI_BOUND_CUT = _code(287, "BWHI_BOUND_CUT", "", "bw", "BBRv2-EXP", _NOT_DRAFT,
    "The probe was too high: the bound on the rate falls {old_bw}->{new_bw} (ECN alpha {ecn_alpha}/256).",
    old_bw=BW, new_bw=BW, ecn_alpha=SHARE)
BWHI_BOUND_RAISE = _code(288, "BWHI_BOUND_RAISE", "", "bw", "BBRv2-EXP", _NOT_DRAFT,
    "A safe sample is above the bound on the rate: {old_bw}->{new_bw}.",
    old_bw=BW, new_bw=BW)
REFILL_BY_ECN_CEASED = _code(289, "REFILL_BY_ECN_CEASED", "", "phase", "BBRv2-EXP", _NOT_DRAFT,
    "CE marks have ceased in a cycle without loss: one packet more (inflight_hi {inflight_hi}), refill and probe.",
    inflight_hi=VOLUME)
DRAIN_EXIT_ROUNDS = _code(290, "DRAIN_EXIT_ROUNDS", "", "mode", "CheckDrainDone()", _DRAIN,
    "Round {rounds} of DRAIN begins, more than it may last: enter PROBE_BW with the queue that is left.",
    rounds=ROUNDS)
# fmt: on

BY_NAME: dict[str, Code] = {code.name: code for code in CODES.values()}
