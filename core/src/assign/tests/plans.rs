//! Plans as text, over the life of a small fleet: whoever changes one, changes what moves when an instance is updated.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Assigner, Balanced, Primary, Rendezvous, loads, member, moves, owners, workloads};
use crate::member::Member;

/// Who is there, one step after the other, in the order in which they joined: instances come, `b` goes and comes back,
/// two more come, the eldest goes.
const LIFE: [&str; 8] = ["a", "ab", "abc", "ac", "acb", "acbd", "acbde", "cbde"];

/// A line for each workload, with its owner at each step; below them what each instance has, and what has moved.
fn life(rule: &dyn Assigner) -> String {
    let workloads = workloads(12, |index| format!("shard-{index:02}"));
    let mut lines: Vec<String> = workloads.iter().map(|name| format!("{name:9}")).collect();
    let mut head = format!("{:9}", "");
    let mut shares = format!("{:9}", "shares");
    let mut moved = format!("{:9}", "moves");
    let mut before = None;
    // A process that comes back is another one, under the same name.
    let mut joined = 0;
    let mut members: Vec<Member> = Vec::new();
    for step in LIFE {
        members.retain(|member| step.contains(member.identity.instance()));
        for name in step.chars().map(String::from) {
            if members.iter().all(|member| member.identity.instance() != name) {
                joined += 1;
                members.push(member(&name, joined));
            }
        }
        let owners = owners(rule, &workloads, &members);
        for (line, owner) in lines.iter_mut().zip(&owners) {
            *line += &format!("{:>11}", owner.instance());
        }
        let loads: Vec<_> = loads(&owners, &members).iter().map(|load| format!("{load}")).collect();
        head += &format!("{step:>11}");
        shares += &format!("{:>11}", loads.join("-"));
        moved += &format!("{:>11}", before.map_or(0, |before: Vec<_>| moves(&before, &owners)));
        before = Some(owners);
    }
    let lines = [head].into_iter().chain(lines).chain([shares, moved]);
    lines.map(|line| line + "\n").collect()
}

fn check(rule: &dyn Assigner, expected: &str) {
    let plan = life(rule);
    assert!(plan == expected, "{} plans otherwise now:\n{plan}", rule.text());
}

#[test]
fn balanced_shifts_its_blocks_with_each_change() {
    check(&Balanced, include_str!("balanced.txt"));
}

#[test]
fn primary_moves_everything_when_the_eldest_goes() {
    check(&Primary, include_str!("primary.txt"));
}

#[test]
fn rendezvous_moves_little_and_stays_within_its_bound() {
    check(&Rendezvous::new(), include_str!("rendezvous.txt"));
}

#[test]
fn unbounded_rendezvous_moves_only_what_it_must() {
    check(&Rendezvous::unbounded(), include_str!("rendezvous-unbounded.txt"));
}
