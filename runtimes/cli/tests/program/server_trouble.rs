//! What happens to servers and on the way to them, while commands run under leases.

mod needs_redis {
    use std::time::Duration;

    use rustix::process::Signal;

    use crate::harness::{
        Pace, Place, Running, between, eventually, figures, lives, now, output, rounds, witness_program,
    };

    const FILE: &str = "evidence";
    /// The key of the lease `job`, as the layout of the store has it.
    const KEY: &str = "tenure:job";

    /// A witness that works under the lease `job` by way of the proxy.
    fn holder(place: &Place, ttl: &str) -> Running {
        place.work(&["--ttl", ttl], FILE, &["--below"])
    }

    /// Another one, which no proxy cuts off.
    fn beside(place: &Place, ttl: &str) -> Running {
        let mut command = place.tenure(&["run", "--lease", "job", "--ttl", ttl, "--"]);
        command.env("TENURE_STORE", place.server().url());
        command.arg(witness_program()).arg("work").arg(place.path(FILE)).arg("--below");
        Running::start(command)
    }

    #[test]
    #[ignore = "needs redis"]
    fn the_lease_of_a_holder_that_is_killed_is_granted_again_as_it_runs_out() {
        const TTL: Duration = Duration::from_secs(1);
        let place = Place::on_redis();
        let mut client = place.server().client();
        let mut holder = holder(&place, "1s");
        let mut began = place.began_above(FILE, 0);
        let (mut late, mut pace) = (Vec::new(), Pace::default());
        for _ in 0..rounds(5) {
            let mut waiter = beside(&place, "1s");
            waiter.waits();
            place.worked(FILE, began.token);
            holder.signal(Signal::KILL);
            assert_eq!(holder.code(), None, "killed");
            let before = client.command(&["GET", KEY]);
            let left = client.command(&["PTTL", KEY]).integer();
            let expires = now() + u64::try_from(left).expect("it has not run out") * 1_000_000;
            let granted = eventually("the next grant", || {
                let holder = client.command(&["GET", KEY]);
                (holder != before && holder != tenure_servers::Reply::Nil).then(now)
            });
            // The server counts in milliseconds, and the reply took some time, too.
            assert!(granted + 5_000_000 > expires, "not before it runs out");
            late.push(between(expires, granted));
            let started = place.began_above(FILE, began.token);
            assert!(!lives(began.process));
            (holder, began) = (waiter, started);
            pace.measure();
        }
        let median = figures("granted after the TTL of 1 s", &late, 50);
        assert!(median <= pace.limit(Duration::from_millis(50), 12).min(TTL), "{median:?}");
        drop(holder);
        place.evidence(FILE).must_be_clean();
    }

    /// Cuts a holder off by its proxy. Its command is dead before the TTL ends, and another one takes over after that.
    fn cut_off(trouble: impl FnOnce(&Place)) {
        const TTL: Duration = Duration::from_secs(2);
        let place = Place::on_redis();
        let mut cut = holder(&place, "2s");
        let began = place.began_above(FILE, 0);
        let mut other = beside(&place, "2s");
        other.waits();
        place.worked(FILE, began.token);
        let since = now();
        trouble(&place);
        let died = eventually("the command's end", || (!lives(began.process)).then(now));
        println!("dead {:?} after it was cut off", between(since, died));
        assert!(between(since, died) < TTL);
        let started = place.began_above(FILE, began.token);
        assert!(died < started.at);
        assert_eq!(cut.code(), Some(76), "lost");
        place.worked(FILE, started.token);
        place.evidence(FILE).must_be_clean();
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_holder_whose_connection_is_closed_and_refused_ends_its_command_before_another_one_begins() {
        cut_off(|place| place.proxy().cut());
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_holder_that_nothing_reaches_any_more_ends_its_command_before_another_one_begins() {
        cut_off(|place| place.proxy().stall());
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_holder_whose_requests_arrive_but_not_their_replies_ends_its_command_before_another_one_begins() {
        cut_off(|place| place.proxy().drop_replies());
    }

    /// A command that ends once there is a file of this name.
    fn until_enough(place: &Place) -> Running {
        let script = r#"echo $$; while [ ! -e "$0" ]; do sleep 0.01; done"#;
        let mut command = place.tenure(&["run", "--lease", "job", "--ttl", "6s", "--", "sh", "-c", script]);
        command.arg(place.path("enough"));
        let running = Running::start(command);
        eventually("the command to begin", || running.stdout.so_far().first().cloned());
        running
    }

    /// Lets something happen, after which the lease is renewed as before, and the command comes to its end.
    fn is_survived(trouble: impl FnOnce(&Place, &mut Running)) {
        let place = Place::on_redis();
        let mut holder = until_enough(&place);
        trouble(&place, &mut holder);
        let mut client = place.server().client();
        eventually("the next renewal", || (client.command(&["PTTL", KEY]).integer() > 5_000).then_some(()));
        std::fs::write(place.path("enough"), "").unwrap();
        assert_eq!(holder.code(), Some(0));
        assert_eq!(client.command(&["GET", KEY]), tenure_servers::Reply::Nil, "given back");
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_server_that_is_killed_and_has_what_it_saved_again_costs_nobody_a_lease() {
        is_survived(|place, holder| {
            place.server().command(&["SAVE"]).ok();
            place.server().kill();
            holder.stderr.wait_for("a renewal failed");
            place.server().restart();
        });
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_connection_that_nothing_passes_any_more_is_replaced_in_time() {
        is_survived(|place, holder| {
            // Those that are open stay open and are dead for good; new ones work.
            place.proxy().stall();
            place.proxy().restore();
            let accepted = place.proxy().accepted();
            eventually("another connection", || (place.proxy().accepted() > accepted).then_some(()));
            assert!(!holder.has_ended());
        });
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_server_that_has_forgotten_everything_costs_the_lease_and_tokens_rise_all_the_same() {
        let place = Place::on_redis();
        let mut first = holder(&place, "3s");
        let began = place.began_above(FILE, 0);
        place.worked(FILE, began.token);
        place.server().restart();
        assert_eq!(first.code(), Some(76), "lost");
        assert!(!lives(began.process));
        let _second = holder(&place, "3s");
        let next = place.began_above(FILE, 0);
        assert!(next.token >= began.token);
        place.began_above(FILE, began.token);
        place.evidence(FILE).must_be_clean();
    }

    #[test]
    #[ignore = "needs redis"]
    fn who_waits_while_the_server_is_away_gets_the_lease_when_it_is_back() {
        let place = Place::on_redis();
        place.server().kill();
        let (code, _, err) = output(place.tenure(&["run", "--lease", "job", "--no-wait", "--", "true"]));
        assert_eq!(code, Some(69), "{err}");
        assert!(err.contains(&place.store()), "{err}");
        let mut patient = Running::start(place.tenure(&["run", "--lease", "job", "--", "echo", "at last"]));
        patient.stderr.wait_for("trying again");
        place.server().restart();
        assert_eq!(patient.code(), Some(0));
        assert_eq!(patient.stdout.to_the_end(), ["at last"]);
    }
}
