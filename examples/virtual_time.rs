//! A program that pays wages each night at two, and its tests, in which nights take no time and instances die.
//!
//! `cargo test --example virtual_time --features cron,testing` runs the tests; `cargo run` with the same runs one of
//! their stories and prints what happens.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::testing::{Fault, Fleet};
use tenure::{Cron, Ctx, Tenure, Token};

type Failure = Box<dyn Error + Send + Sync>;

const STAFF: [&str; 3] = ["anna", "ben", "cleo"];

/// The program, as each instance runs it.
async fn program(tenure: Tenure, bank: Bank) -> Result<(), Failure> {
    let instance = tenure.identity().instance().to_owned();
    let work = move |ctx| pay(ctx, bank.clone(), instance.clone());
    let wages = tenure
        .periodic("wages", Cron::new("0 2 * * *", "Europe/Berlin")?, work)
        // Whoever dies in the middle is followed by another one: what it does has to bear being repeated.
        .attempts(3)
        // Whoever is told to end in the middle may finish the night.
        .drain_timeout(Duration::from_secs(300))
        .start()?;
    tenure.until_terminated().await?;
    drop(wages);
    Ok(())
}

/// One night: each payment takes a minute.
async fn pay(ctx: Ctx, bank: Bank, instance: String) -> Result<(), Failure> {
    // The number of the tick, which is the same in each attempt at it.
    let night = ctx.tick().ok_or("this is no run of a tick")?.tick.n;
    for name in STAFF {
        // By Tenure's clock and not by tokio's: so a test can let the time pass.
        ctx.sleep(Duration::from_secs(60)).await;
        bank.pay(ctx.token(), night, name, &instance)?;
    }
    Ok(())
}

/// What must not pay twice. It keeps what was paid, and refuses whoever's token is below the highest it has seen.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    highest: Token,
    paid: BTreeMap<(u64, &'static str), String>,
    refused: u32,
}

impl Bank {
    fn pay(&self, token: Token, night: u64, name: &'static str, by: &str) -> Result<(), Failure> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token < books.highest {
            books.refused += 1;
            return Err("somebody came later: this run is over".into());
        }
        books.highest = token;
        books.paid.entry((night, name)).or_insert_with(|| by.to_owned());
        Ok(())
    }

    /// Who has paid whom in the first night, the second, and so on, in the order of their names.
    fn night(&self, n: usize) -> Vec<(&'static str, String)> {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nights: BTreeSet<u64> = books.paid.keys().map(|(night, _)| *night).collect();
        let Some(night) = nights.into_iter().nth(n - 1) else { return Vec::new() };
        books.paid.range((night, "")..(night + 1, "")).map(|((_, name), by)| (*name, by.clone())).collect()
    }
}

/// Three instances, at one in the morning.
fn three() -> (Fleet, Bank) {
    let fleet = Fleet::new().starting_at("2026-12-01T01:00:00+01:00");
    let bank = Bank::default();
    for name in ["blue", "green", "red"] {
        fleet.spawn(name, program(fleet.start(name), bank.clone()));
    }
    (fleet, bank)
}

fn main() {
    let (fleet, bank) = three();
    fleet.advance_to("2026-12-01T02:10:00+01:00");
    println!("the first night:  {:?}", bank.night(1));

    fleet.advance_to("2026-12-02T02:01:30+01:00");
    let (_, busy) = bank.night(2).pop().expect("somebody has begun");
    println!("the second night: {:?}; now {busy} crashes", bank.night(2));
    fleet.inject(&busy, Fault::Crashed);
    fleet.advance(Duration::from_secs(600));
    println!("                  {:?}", bank.night(2));
    println!("{:?} of virtual time have passed", fleet.elapsed());
}

#[test]
fn each_night_everybody_is_paid_once_by_one_instance() {
    let (fleet, bank) = three();
    fleet.advance_to("2026-12-01T02:00:00+01:00");
    assert_eq!(bank.night(1), []);
    for night in 1..=3 {
        fleet.advance(Duration::from_secs(600));
        let paid = bank.night(night);
        assert_eq!(paid.len(), STAFF.len());
        assert!(paid.iter().all(|(_, by)| *by == paid[0].1), "{paid:?}");
        fleet.advance(Duration::from_secs(24 * 3600 - 600));
    }
}

#[test]
fn a_night_in_which_whoever_pays_dies_is_finished_by_another() {
    let (fleet, bank) = three();
    fleet.advance_until(|| bank.night(1).len() == 1);
    let (_, dead) = bank.night(1).remove(0);
    fleet.inject(&dead, Fault::Crashed);
    fleet.advance(Duration::from_secs(600));
    let paid = bank.night(1);
    assert_eq!(paid.len(), STAFF.len());
    assert!(paid[1..].iter().all(|(_, by)| *by != dead), "{paid:?}");
}

#[test]
fn whoever_is_frozen_in_the_middle_pays_nobody_after_it_was_replaced() {
    let (fleet, bank) = three();
    fleet.advance_until(|| bank.night(1).len() == 1);
    let (_, frozen) = bank.night(1).remove(0);
    fleet.inject(&frozen, Fault::Frozen);
    fleet.advance(Duration::from_secs(600));
    let paid = bank.night(1);
    assert_eq!(paid.len(), STAFF.len());
    fleet.heal(&frozen);
    fleet.advance(Duration::from_secs(600));
    assert_eq!(bank.night(1), paid);
    // It has not even tried: its run was over before it could.
    assert_eq!(bank.0.lock().unwrap().refused, 0);
}

#[test]
fn a_deploy_in_the_middle_of_the_night_lets_it_be_finished_where_it_began() {
    let (fleet, bank) = three();
    fleet.advance_until(|| bank.night(1).len() == 1);
    for name in ["blue", "green", "red"] {
        fleet.terminate(name);
        fleet.spawn(name, program(fleet.start(name), bank.clone()));
        fleet.advance(Duration::from_secs(10));
    }
    fleet.advance(Duration::from_secs(600));
    let paid = bank.night(1);
    assert_eq!(paid.len(), STAFF.len());
    assert!(paid.iter().all(|(_, by)| *by == paid[0].1), "{paid:?}");
}
