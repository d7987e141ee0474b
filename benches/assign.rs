//! What a plan costs: each rule shares workloads out among instances. A coordinator makes a plan for each change of the
//! members.

use divan::{AllocProfiler, Bencher};
use tenure_core::{AnyAssigner, Identity, Incarnation, LeaseName, Member, Timestamp};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const SIZES: [Size; 4] = [
    Size { workloads: 12, members: 3 },
    Size { workloads: 1_000, members: 10 },
    Size { workloads: 1_000, members: 100 },
    Size { workloads: 10_000, members: 100 },
];

#[derive(Clone, Copy)]
struct Size {
    workloads: u32,
    members: u32,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.workloads, self.members)
    }
}

fn names(count: u32) -> Vec<LeaseName> {
    (0..count).map(|index| LeaseName::new(format!("workload-{index:05}")).expect("a fine name")).collect()
}

fn members(count: u32) -> Vec<Member> {
    let member = |index: u32| {
        let identity = Identity::new(format!("host:{index}"), Incarnation::new(u128::from(index) << 64 | 1));
        Member::new(identity.expect("a fine name"), Timestamp::from_nanos(i64::from(index)))
    };
    (0..count).map(member).collect()
}

fn bench(bencher: Bencher<'_, '_>, rule: &str, size: Size) {
    let rule: AnyAssigner = rule.parse().expect("one of the core's");
    let (workloads, members) = (names(size.workloads), members(size.members));
    bencher.bench_local(|| rule.assign(&workloads, &members));
}

#[divan::bench(args = SIZES)]
fn balanced(bencher: Bencher<'_, '_>, size: Size) {
    bench(bencher, "balanced", size);
}

#[divan::bench(args = SIZES)]
fn primary(bencher: Bencher<'_, '_>, size: Size) {
    bench(bencher, "primary", size);
}

#[divan::bench(args = SIZES)]
fn rendezvous(bencher: Bencher<'_, '_>, size: Size) {
    bench(bencher, "rendezvous", size);
}

#[divan::bench(args = SIZES)]
fn rendezvous_unbounded(bencher: Bencher<'_, '_>, size: Size) {
    bench(bencher, "rendezvous-unbounded", size);
}
