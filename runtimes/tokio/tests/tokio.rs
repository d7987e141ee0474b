//! What is tokio's alone: what a runtime may lack, and where work goes that is started outside of any.

use std::sync::mpsc;
use std::thread;

use futures::executor::block_on;
use tenure_driver::{Builder, Ctx, Runtime as _, StartError, Tenure};
use tenure_memory::MemoryStore;
use tenure_suite::GENEROUS;
use tenure_tokio::Tokio;
use tokio::runtime::Runtime;

#[test]
fn a_runtime_that_lacks_something_is_refused_with_what_to_do() {
    fn refused(runtime: Option<Runtime>) -> String {
        let _entered = runtime.as_ref().map(Runtime::enter);
        let error = Builder::new(Tokio::current()).store(MemoryStore::new()).start().unwrap_err();
        assert!(matches!(error, StartError::Runtime(_)));
        error.to_string()
    }
    assert!(refused(None).contains("no tokio runtime"), "{}", refused(None));
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(refused(Some(bare)).contains("enable_all"));
    let no_io = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    if cfg!(target_os = "linux") {
        assert!(refused(Some(no_io)).contains("I/O driver"));
    }
}

#[test]
fn with_a_thread_of_its_own_no_runtime_is_needed_to_start() {
    let tokio = Tokio::current().on_own_thread().unwrap();
    let tenure = Builder::new(tokio).store(MemoryStore::new()).start().unwrap();
    let elsewhere = tokio::runtime::Builder::new_current_thread().build().unwrap();
    elsewhere.block_on(async {
        tenure.acquire("a").await.unwrap().release().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}

/// The name of the thread on which work runs that is started here.
fn where_work_runs(tenure: &Tenure) -> Option<String> {
    let (sender, names) = mpsc::channel();
    let work = move |ctx: Ctx| {
        sender.send(thread::current().name().map(str::to_owned)).unwrap();
        async move {
            ctx.draining().await;
        }
    };
    let worker = tenure.worker("a", work).start().unwrap();
    let name = names.recv_timeout(GENEROUS).unwrap();
    assert_eq!(block_on(worker.drain()), Ok(()));
    block_on(tenure.shutdown()).unwrap();
    name
}

#[test]
fn work_that_is_started_outside_of_any_runtime_runs_on_that_of_the_program() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_name("of the program")
        .enable_all()
        .build()
        .unwrap();
    for own in [false, true] {
        let tenure = {
            let _entered = runtime.enter();
            let builder = Builder::new(Tokio::current());
            let builder = if own { builder.on_own_thread() } else { builder };
            builder.store(MemoryStore::new()).start().unwrap()
        };
        // It may block there: the thread of the leases, where there is one, is for nothing else.
        assert_eq!(where_work_runs(&tenure).as_deref(), Some("of the program"), "{own}");
    }
}

#[test]
fn work_runs_where_the_leases_are_renewed_if_there_is_no_other_runtime() {
    let tenure = Builder::new(Tokio::current()).on_own_thread().store(MemoryStore::new()).start().unwrap();
    assert_eq!(where_work_runs(&tenure).as_deref(), Some("tenure"));
}
