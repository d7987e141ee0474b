//! The program on a server of NATS.

mod needs_nats {
    use std::process::{Command, Output};

    use tenure_servers::Nats;

    use crate::harness::eventually;

    fn tenure(server: &Nats, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(arguments).env_clear().env("TENURE_STORE", server.url());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    fn output(mut command: Command) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code(), text)
    }

    #[test]
    #[ignore = "needs nats-server"]
    fn commands_exclude_each_other_and_lists_show_them() {
        let server = Nats::start();
        let mut first = tenure(&server, &["run", "--lease", "job", "--", "cat"]);
        let mut holder = first.stdin(std::process::Stdio::piped()).spawn().expect("the program starts");
        eventually("a lease that is held", || {
            output(tenure(&server, &["leases"])).1.contains("job").then_some(())
        });
        let (code, said) = output(tenure(&server, &["run", "--lease", "job", "--no-wait", "--", "true"]));
        assert_eq!(code, Some(75), "{said}");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("it ends").success());
        let (code, said) = output(tenure(&server, &["run", "--lease", "job", "--", "echo", "next"]));
        assert!(code == Some(0) && said.contains("next"), "{said}");
        let (code, said) = output(tenure(&server, &["status"]));
        assert_eq!(code, Some(0), "{said}");
    }
}
