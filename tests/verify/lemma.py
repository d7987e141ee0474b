#!/usr/bin/env python3
"""The timing of a lease, proven with z3 for all real times and for all settings that are allowed.

    tests/run lemma
    cargo run -q -p tenure-verify --example timing | python3 tests/verify/lemma.py

Standard input says what `core/src/timing.rs` makes of thousands of settings, at the limits of its rules and beyond
them, and how long the machines then wait. The formulas below must give the same, to the nanosecond. The lemmas are
about these very formulas, so they are about that code; a change there shows here.

A lemma that holds is one whose negation has no solution, though its assumptions have one. Those at the end are to
be refuted: they show that the margins are needed, and that the check can fail.

Clocks: while a true time t goes by, a clock with drift rho counts something from (1 - rho) t to (1 + rho) t. It is
read in ticks, so a reading is up to one tick old. The store's clock may besides step by delta in all while one
renewal counts, and the store may keep a record for up to one grain too short or too long. q is grain and tick.
"""

import sys
import time
from fractions import Fraction
from types import SimpleNamespace

import z3

MILLISECOND = 1_000_000  # all times are in nanoseconds, as in the core
SECOND = 1_000 * MILLISECOND
TIME_LIMIT = 60 * 1_000  # of z3 for one lemma, in milliseconds; each takes far less

# --- what core/src/timing.rs and the machines say -----------------------------------------------------------

MIN_TTL = 50 * MILLISECOND
MAX_TTL = 7 * 24 * 3_600 * SECOND
MAX_DRIFT = Fraction(200_000, 1_000_000)
MIN_STEP = MILLISECOND
DEFAULT_STOP_BUDGET = 2 * SECOND
KILL_MARGIN = 250 * MILLISECOND
EXPIRY_GRAIN = MILLISECOND
EXPIRY_SPREAD = 40 * MILLISECOND


def least(a, b):
    return z3.If(a <= b, a, b) if z3.is_expr(a) or z3.is_expr(b) else min(a, b)


def most(a, b):
    return z3.If(a >= b, a, b) if z3.is_expr(a) or z3.is_expr(b) else max(a, b)


def half(a):
    """Rounded down for whole numbers."""
    return a // 2 if isinstance(a, int) else a / 2


def valid_for(s):
    """V."""
    return s.ttl * (1 - s.drift) / (1 + s.store_drift) - s.quantum - s.step


def outlived_after(s):
    return (s.ttl + s.quantum + s.step) * (1 + s.drift) / (1 - s.store_drift)


def kill_margin(s):
    return least(KILL_MARGIN, half(s.stop_budget))


def first_backoff(s):
    return least(most(s.attempt_timeout / 16, MIN_STEP), s.attempt_timeout)


def backoff(s, failures):
    """The longest pause after that many failures in a row; the shortest is half of it."""
    return least(first_backoff(s) * 2 ** (failures - 1), s.attempt_timeout)


def expiry_spread(s):
    return least(EXPIRY_SPREAD, s.ttl / 8)


def rules(s):
    """What a setting must keep, in the order in which it is checked: the field and its conditions."""
    usable = s.valid_for - s.stop_budget
    return [
        ("ttl", [s.ttl >= MIN_TTL, s.ttl <= MAX_TTL]),
        ("drift", [s.drift >= 0, s.drift <= MAX_DRIFT]),
        ("store_drift", [s.store_drift >= 0, s.store_drift <= MAX_DRIFT]),
        ("ttl", [4 * s.valid_for >= s.ttl]),
        ("stop_budget", [s.stop_budget >= MIN_STEP, 2 * s.stop_budget <= s.valid_for]),
        ("renew_interval", [s.renew_interval >= MIN_STEP, 2 * s.renew_interval <= usable]),
        ("attempt_timeout", [s.attempt_timeout >= MIN_STEP, 2 * s.attempt_timeout <= s.renew_interval]),
    ]


def set_defaults(s, given):
    """What is not given follows from the rest."""
    s.stop_budget = given.get("wanted_stop_budget", least(DEFAULT_STOP_BUDGET, s.valid_for // 4))
    s.renew_interval = given.get("wanted_renew_interval", (s.valid_for - s.stop_budget) // 3)
    s.attempt_timeout = given.get("wanted_attempt_timeout", half(s.renew_interval))


def compare_with_the_core(lines):
    """Returns how many cases were compared and how many of them are refused; ends the program at a difference."""
    cases = refusals = 0
    for line in lines:
        said = dict(pair.split("=") for pair in line.split())
        refused = said.pop("refused", None)
        said = {key: int(value) for key, value in said.items()}
        s = SimpleNamespace(**{key: said[key] for key in ("ttl", "quantum", "step")})
        s.drift, s.store_drift = (Fraction(said[key], 1_000_000) for key in ("drift", "store_drift"))
        s.valid_for = max(valid_for(s).__floor__(), 0)
        set_defaults(s, said)
        broken = [field for field, conditions in rules(s) if not all(conditions)]
        cases += 1
        if broken or refused:
            refusals += 1
            expect(line, "refused", refused, broken[0] if broken else None)
            continue
        for field in ("valid_for", "stop_budget", "renew_interval", "attempt_timeout"):
            expect(line, field, said[field], getattr(s, field))
        expect(line, "outlived_after", said["outlived_after"], outlived_after(s).__floor__() + 1)
        expect(line, "kill_margin", said["kill_margin"], kill_margin(s))
        # Lined up with others, by a sixteenth of the interval at most.
        early = s.renew_interval - said["renewed_after"]
        expect(line, "renewed_after", 0 <= 16 * early <= s.renew_interval, True)
        expect(line, "shortest_expiry_wait", said["shortest_expiry_wait"], EXPIRY_GRAIN)
        expect(line, "longest_expiry_wait", said["longest_expiry_wait"], EXPIRY_GRAIN + int(expiry_spread(s)) - 1)
        s.attempt_timeout = Fraction(s.attempt_timeout)
        for failures in range(1, 7):
            longest, exact = said[f"longest_backoff_{failures}"], backoff(s, failures)
            # The roundings of a sixteenth and of two halves, doubled with the rest; the longest is not drawn.
            expect(line, "longest_backoff", exact - 2**failures - 1 <= longest < exact, True)
            expect(line, "shortest_backoff", abs(2 * said[f"shortest_backoff_{failures}"] - longest) <= 2, True)
    return cases, refusals


def expect(line, what, core, here):
    if core != here:
        sys.exit(f"{what}: the core says {core}, this file {here}, for\n{line}")


# --- the model ----------------------------------------------------------------------------------------------


class Model:
    """Settings that are allowed, and what happens under them: variables and the conditions on them."""

    def __init__(self):
        self.given = []
        s = self.settings = SimpleNamespace()
        for field in ("ttl", "drift", "store_drift", "grain", "tick", "step", "valid_for", "stop_budget",
                      "renew_interval", "attempt_timeout"):
            setattr(s, field, z3.Real(field))
        s.quantum = s.grain + s.tick
        self.assume(s.grain >= 0, s.tick >= 0, s.step >= 0)
        for _, conditions in rules(s):
            self.assume(*conditions)

    def assume(self, *conditions):
        self.given += conditions

    def margins(self, formula=valid_for):
        """V is at most what the formula says: the core rounds down."""
        self.assume(self.settings.valid_for <= formula(self.settings))
        return self

    def times(self, names):
        return z3.Reals(names)

    def local(self, true, counted):
        """While `true` goes by, a holder's clock counts this."""
        self.assume(true >= 0, counted >= (1 - self.settings.drift) * true,
                    counted <= (1 + self.settings.drift) * true)

    def store(self, true, counted, stepped=0):
        """While `true` goes by, the store's clock counts this, and steps."""
        steady = counted - stepped
        self.assume(true >= 0, steady >= (1 - self.settings.store_drift) * true,
                    steady <= (1 + self.settings.store_drift) * true)


LEMMAS = []


def lemma(words):
    """A lemma: a function that returns its model and its claim."""
    return lambda build: LEMMAS.append((build.__name__, words, build, True)) or build


def refuted(words):
    """A claim that must not hold."""
    return lambda build: LEMMAS.append((build.__name__, words, build, False)) or build


# --- S2: belief implies ownership -----------------------------------------------------------------------------


def one_renewal(formula, counted_from_reply=False):
    """A command is emitted, executed and acknowledged; some time later its sender still believes."""
    m = Model().margins(formula)
    s = m.settings
    travel, reply, rest = m.times("travel reply rest")  # true times: to the store, back, and from then on
    on_travel, on_reply, on_rest = m.times("holder_travel holder_reply holder_rest")  # by the holder's clock
    m.local(travel, on_travel)
    m.local(reply, on_reply)
    m.local(rest, on_rest)
    since_execution, stepped = m.times("store_since_execution store_stepped")
    m.store(reply + rest, since_execution, stepped)
    m.assume(stepped <= s.step, stepped >= -s.step)
    counted = on_rest if counted_from_reply else on_travel + on_reply + on_rest
    m.assume(counted - s.tick < s.valid_for)  # it believes
    return m, since_execution < s.ttl - s.grain  # the record is not over


@lemma("whoever reads less than the emission of an acknowledged command + V has an unexpired record")
def belief_implies_ownership():
    return one_renewal(valid_for)


def holding(m):
    """A state in which the record is ours, as seen when clocks show `now` and `store_now`.

    `ahead` is what the store's clock may still step; `until` is until when the holder believes. The invariant: the
    record outlives the belief, even if the store's clock runs as fast and the holder's as slow as they may.
    """
    s = m.settings
    now, store_now, expires, ahead, until = m.times("now store_now expires ahead until")
    m.assume(ahead >= 0, ahead <= s.step, until <= now + s.valid_for)

    def outlives(now, store_now, expires, ahead, until):
        record, belief = expires - s.grain - ahead - store_now, until + s.tick - now
        return record * (1 - s.drift) >= belief * (1 + s.store_drift)

    return SimpleNamespace(now=now, store_now=store_now, expires=expires, ahead=ahead, until=until), outlives


@lemma("inductive, 1: the invariant holds once the store has executed a command (a grant, a renewal, a repeated one), "
       "for each belief that any command up to now may lead to")
def execution_makes_the_record_outlive_belief():
    m = Model().margins()
    at, outlives = holding(m)
    s = m.settings
    return m, outlives(at.now, at.store_now, at.store_now + s.ttl, s.step, at.until)


@lemma("inductive, 2: the invariant goes on to hold while time passes and the store's clock steps")
def time_keeps_the_record_outliving_belief():
    m = Model().margins()
    at, outlives = holding(m)
    m.assume(outlives(at.now, at.store_now, at.expires, at.ahead, at.until))
    passed, counted, store_counted, stepped = m.times("passed counted store_counted stepped")
    m.local(passed, counted)
    m.store(passed, store_counted, stepped)
    m.assume(stepped <= at.ahead, stepped >= -at.ahead)
    ahead = at.ahead - most(stepped, 0)
    return m, outlives(at.now + counted, at.store_now + store_counted, at.expires, ahead, at.until)


@lemma("inductive, 3: an acknowledgement moves belief to the later of two ends for which the invariant holds")
def acknowledgement_keeps_the_record_outliving_belief():
    m = Model().margins()
    at, outlives = holding(m)
    emitted, = m.times("emitted,")
    m.assume(emitted <= at.now)
    acknowledged = emitted + m.settings.valid_for
    for until in (at.until, acknowledged):
        m.assume(outlives(at.now, at.store_now, at.expires, at.ahead, until))
    return m, outlives(at.now, at.store_now, at.expires, at.ahead, most(at.until, acknowledged))


@lemma("inductive, 4: while the invariant holds, whoever believes has an unexpired record")
def the_invariant_implies_ownership():
    m = Model().margins()
    at, outlives = holding(m)
    m.assume(outlives(at.now, at.store_now, at.expires, at.ahead, at.until))
    m.assume(at.now - m.settings.tick < at.until)  # it believes
    return m, at.store_now < at.expires - m.settings.grain


# --- the end is planned ---------------------------------------------------------------------------------------


@lemma("in whole nanoseconds, whatever is allowed: fence_at < kill_at < valid_until")
def work_is_asked_then_stopped_then_over():
    m = Model()
    margin, valid_until, kill_at, fence_at, budget = z3.Ints("margin valid_until kill_at fence_at budget")
    s = m.settings
    m.assume(s.stop_budget == z3.ToReal(budget))
    m.assume(margin == least(z3.IntVal(KILL_MARGIN), budget / 2))
    m.assume(kill_at == valid_until - margin, fence_at == valid_until - budget)
    return m, z3.And(fence_at < kill_at, kill_at < valid_until)


@lemma("whatever is allowed: when the first attempt at a renewal gets no answer, a second one leaves before the fence, "
       "with more than a third of its timeout left")
def a_retry_begins_before_the_fence():
    m = Model()
    s = m.settings
    second = s.renew_interval + s.attempt_timeout + first_backoff(s)
    left = s.valid_for - s.stop_budget - second
    return m, 3 * left > s.attempt_timeout


def default_renewals(m):
    """The renewal interval and the attempt timeout are the defaults."""
    s = m.settings
    m.assume(3 * s.renew_interval == s.valid_for - s.stop_budget, 2 * s.attempt_timeout == s.renew_interval)
    return m, s.valid_for - s.stop_budget


@lemma("with the default interval and timeout the second attempt has its whole timeout before the fence")
def a_whole_retry_fits_before_the_fence():
    m, fence = default_renewals(Model())
    s = m.settings
    return m, s.renew_interval + s.attempt_timeout + first_backoff(s) + s.attempt_timeout < fence


@lemma("with the default interval and timeout, and a TTL of a second or more, four attempts leave before the fence "
       "though none is answered")
def four_attempts_leave_before_the_fence():
    m, fence = default_renewals(Model())
    s = m.settings
    m.assume(s.ttl >= SECOND)
    fourth = s.renew_interval + sum(s.attempt_timeout + backoff(s, failures) for failures in (1, 2, 3))
    return m, fourth < fence


@lemma("L2: if renew_interval + k (attempt_timeout + backoff) + pauses + round trip is less than the time to the fence, "
       "k failures in a row (up to 4) and pauses lose nothing")
def no_needless_loss():
    m = Model()
    s = m.settings
    round_trip, pauses = m.times("round_trip pauses")
    m.assume(round_trip >= 0, pauses >= 0)
    fence = s.valid_for - s.stop_budget
    claims = []
    for failures in range(5):
        # By the holder's clock, from the emission of the last acknowledged command.
        waits = [z3.Real(f"wait_{failures}_{i}") for i in range(failures)]
        late = [z3.Real(f"late_{failures}_{i}") for i in range(failures + 1)]
        m.assume(*(pause >= 0 for pause in late), sum(late) <= pauses)
        emitted, = m.times(f"first_{failures},")
        m.assume(emitted >= 0, emitted <= s.renew_interval + late[0])
        for i, wait in enumerate(waits):
            m.assume(wait >= 0, wait <= backoff(s, i + 1))
            emitted = emitted + s.attempt_timeout + wait + late[i + 1]
        answered = emitted + round_trip
        spent = sum(s.attempt_timeout + backoff(s, i + 1) for i in range(failures))
        claims.append(z3.Implies(s.renew_interval + spent + pauses + round_trip < fence, answered < fence))
    return m, z3.And(claims)


def outlived(formula):
    m = Model()
    s = m.settings
    passed, counted, store_counted, stepped = m.times("passed counted store_counted stepped")
    m.local(passed, counted)
    m.store(passed, store_counted, stepped)
    m.assume(stepped <= s.step, stepped >= -s.step)
    m.assume(counted + s.tick >= formula(s))
    return m, store_counted >= s.ttl + s.grain


@lemma("once outlived_after has passed on the holder's clock since the store executed its last command, the record is "
       "over at the store")
def what_was_outlived_is_over():
    return outlived(outlived_after)


# --- L1: takeover ---------------------------------------------------------------------------------------------


def takeover(slowest, m):
    """A holder dies after its last renewal; a candidate was refused some time later (or before: then it was told of an
    earlier end), slept for what it was told, and asks again. Its next request is executed by the bound."""
    s = m.settings
    refused, renewed_to_refused, stepped = m.times("refused store_renewed_to_refused store_stepped")  # after the renewal
    m.store(refused, renewed_to_refused, stepped)
    m.assume(stepped <= s.step, stepped >= -s.step)
    m.assume(renewed_to_refused < s.ttl + s.grain)  # it was still refused
    remaining = most(s.ttl - renewed_to_refused, 0)
    round_trip, slept, wait = m.times("round_trip slept wait")
    m.assume(round_trip >= 0)
    m.local(slept, wait)
    m.assume(wait <= remaining + EXPIRY_GRAIN + expiry_spread(s))
    granted = refused + round_trip + slept + round_trip
    over = (s.ttl + s.grain + s.tick + s.step) / (1 - slowest)
    retry = (EXPIRY_GRAIN + expiry_spread(s)) / (1 - s.drift)
    return m, granted <= over + retry + 2 * round_trip


@lemma("L1: some candidate is valid by (TTL + q + delta) / (1 - the larger drift) + retry / (1 - rho) + 2d after the last "
       "renewal that was executed")
def a_dead_holders_lease_is_taken_over_in_time():
    m = Model()
    return takeover(most(m.settings.drift, m.settings.store_drift), m)


@lemma("L1: with clocks no worse than the store's that is TTL / (1 - rhos) + retry / (1 - rho) + 2d, and q + delta")
def takeover_counts_on_the_stores_clock():
    m = Model()
    m.assume(m.settings.drift <= m.settings.store_drift)
    return takeover(m.settings.store_drift, m)


@lemma("L1: a grant whose round trip takes no longer than an attempt may is not granted too late")
def a_grant_in_time_is_before_the_fence():
    m = Model()
    s = m.settings
    round_trip, counted = m.times("round_trip counted")
    m.local(round_trip, counted)
    m.assume(counted <= s.attempt_timeout)
    return m, counted < s.valid_for - s.stop_budget


# --- what must not hold -----------------------------------------------------------------------------------------


def usual(m, claim, formula=valid_for):
    """In a plain situation: a TTL of 15 s, clocks that drift by up to 1 %, a grain and a tick of half a millisecond,
    no steps."""
    s = m.settings
    m.assume(s.ttl == 15 * SECOND, s.drift == Fraction(1, 100), s.store_drift == s.drift)
    m.assume(s.grain == MILLISECOND / 2, s.tick == s.grain, s.step == 0, s.valid_for == formula(s))
    return m, claim


def with_validity(formula):
    return usual(*one_renewal(formula), formula)


@refuted("V = TTL would do")
def no_margin_is_needed():
    return with_validity(lambda s: s.ttl)


@refuted("V = TTL (1 - rho) / (1 + rhos) would do: no margin for grain, tick and steps")
def no_margin_for_grain_and_steps_is_needed():
    return with_validity(lambda s: valid_for(s) + s.quantum + s.step)


@refuted("V = TTL - q - delta would do: no margin for drift")
def no_margin_for_drift_is_needed():
    return with_validity(lambda s: s.ttl - s.quantum - s.step)


@refuted("V could be counted from the reply")
def validity_may_be_counted_from_the_reply():
    return usual(*one_renewal(valid_for, counted_from_reply=True))


@refuted("outlived_after = TTL (1 + rho) / (1 - rhos) + q + delta would do: grain and steps pass on drifting clocks, too")
def grain_and_steps_pass_on_a_perfect_clock():
    return usual(*outlived(lambda s: s.ttl * (1 + s.drift) / (1 - s.store_drift) + s.quantum + s.step))


@refuted("with settings at the limits of the rules a whole second attempt fits before the fence")
def a_whole_retry_fits_whatever_is_allowed():
    m = Model()
    s = m.settings
    second = s.renew_interval + s.attempt_timeout + first_backoff(s)
    return m, second + s.attempt_timeout < s.valid_for - s.stop_budget


@refuted("L1 as in takeover_counts_on_the_stores_clock, though the candidate's clock may be slower than the store's")
def takeover_counts_on_the_stores_clock_alone():
    m = Model()
    return takeover(m.settings.store_drift, m)


# --- running them -------------------------------------------------------------------------------------------------


def solve(conditions):
    solver = z3.Solver()
    solver.set("timeout", TIME_LIMIT)
    solver.add(conditions)
    return solver.check(), solver


def say(name, value):
    """A number of the counterexample: a rate, or a time, in milliseconds."""
    if z3.is_algebraic_value(value):
        value = value.approx(20)
    number = float(value.as_long() if z3.is_int_value(value) else value.as_fraction())
    return f"{name} = {number:.1%}" if "drift" in name else f"{name} = {number / MILLISECOND:,.3f} ms"


def run(name, words, build, holds):
    begin = time.monotonic()
    model, claim = build()
    possible, _ = solve(model.given)
    outcome, solver = solve([*model.given, z3.Not(claim)])
    took = time.monotonic() - begin
    good = possible == z3.sat and outcome == (z3.unsat if holds else z3.sat)
    said = {"unsat": "holds", "sat": "refuted"}.get(str(outcome), "unknown")
    if possible != z3.sat:
        said += f", assumptions {possible}"
    print(f"{'ok' if good else 'WRONG':5} {said:8} {name} ({took:.2f} s)\n      {words}")
    if outcome == z3.sat:
        found = solver.model()
        numbers = {str(it): found[it] for it in found.decls() if it.arity() == 0}
        print("      but: " + ", ".join(say(*each) for each in sorted(numbers.items())))
    return good


def main():
    cases, refusals = compare_with_the_core(sys.stdin)
    if min(cases - refusals, refusals) < 100:
        sys.exit(f"only {cases} cases of the core were given, {refusals} of them refused; see the head of this file")
    print(f"the formulas are the core's: {cases} cases, {refusals} of them refused\n")
    good = [run(*each) for each in LEMMAS]
    print(f"\n{len(good)} lemmas, {good.count(False)} not as they should be; z3 {z3.get_version_string()}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
